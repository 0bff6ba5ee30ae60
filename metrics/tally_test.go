package metrics_test

import (
	"strconv"
	"testing"

	"github.com/aguihub/aguihub/metrics"
)

// The rule: whatever is counted, there are few labels.
func TestATallyIsBounded(t *testing.T) {
	t.Parallel()
	var c metrics.Tally
	c.Expect("expected")
	for i := range 200 {
		c.Add(strconv.Itoa(i))
	}
	c.Add("1")
	got := c.Read()
	if len(got) != 65 || got["1"] != 2 || got["other"] != 200-63 || got["expected"] != 0 {
		t.Error(len(got), got["1"], got["other"], got["expected"])
	}
}
