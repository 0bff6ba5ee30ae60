package stream_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// TestLeasesOfManyRunsAreThoseOfEach: that most runs have none is found out for many at once.
func TestLeasesOfManyRunsAreThoseOfEach(t *testing.T) {
	t.Parallel()
	s := streamtest.StartRedis(t)
	client, log := s.Client(t), connect(t, s.URL())
	var runs []stream.RunID
	for i := range 260 {
		run := stream.RunID(fmt.Sprintf("r%d", i))
		runs = append(runs, run)
		switch i {
		case 0, 77, 259: // those between 100 and 250 have nothing
			if _, err := log.Claim(t.Context(), run, stream.Claim{Producer: "p", TTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
		case 10: // a plain agent's
			if err := client.Set(t.Context(), "{agui:run:r10}:lease", "me:0", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
		case 260 - 2: // lapsed
			if _, err := log.Claim(t.Context(), run, stream.Claim{Producer: "p", TTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
			if err := client.Del(t.Context(), "{agui:run:r258}:lease").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, err := log.Leases(t.Context(), runs...)
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for i, run := range runs {
		one, err := log.Leases(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		if one[0].Left, all[i].Left = one[0].Left.Truncate(time.Minute), all[i].Left.Truncate(time.Minute); one[0] != all[i] {
			t.Errorf("%s: %+v, and among others %+v", run, one[0], all[i])
		}
		if all[i].Held {
			held++
		}
	}
	if held != 4 || !all[258].Known || slices.ContainsFunc(all[100:250], func(l stream.Lease) bool { return l.Known }) {
		t.Errorf("%d leases, %+v", held, all[258])
	}
	before := commands(t, client)
	if _, err := log.Leases(t.Context(), runs[100:250]...); err != nil {
		t.Fatal(err)
	}
	if after := commands(t, client); after["hmget"] > before["hmget"] || after["exists"] != before["exists"]+3 {
		t.Errorf("%d hash reads and %d looks for 150 runs without a lease", after["hmget"]-before["hmget"], after["exists"]-before["exists"])
	}
}
