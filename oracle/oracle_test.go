package oracle

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(Keep(m)) }

const seeds = 300

func TestEveryGeneratedStreamIsAcceptedByTheNewestClient(t *testing.T) {
	o := Start(t)
	streams := make([]Stream, seeds)
	jobs := make([]Job, seeds)
	for i := range streams {
		streams[i] = Generate(uint64(i))
		jobs[i] = streams[i].Job()
	}
	accepted, types, events, multi := 0, map[string]int{}, 0, 0
	for i, r := range o.ReplayBatch(t, jobs) {
		s := streams[i]
		if s.Runs == nil {
			t.Errorf("seed %d can't be split into runs", i)
		}
		if len(s.Runs) > 1 {
			multi++
		}
		events += len(s.Lines)
		for _, l := range s.Lines {
			var h head
			if err := json.Unmarshal(l, &h); err != nil {
				t.Fatalf("seed %d: %v: %s", i, err, l)
			}
			types[h.Type]++
		}
		if r.OK {
			accepted++
			continue
		}
		t.Errorf("seed %d: event %d of %d: %s: %s\n%s", i, r.At, len(s.Lines), r.Stage, r.Error, s.Lines[max(0, r.At)])
	}
	t.Logf("%d of %d seeds accepted; %d events, %d streams of several runs", accepted, seeds, events, multi)
	for _, typ := range slices.Sorted(maps.Keys(types)) {
		t.Logf("%6d %q", types[typ], typ)
	}
	for _, typ := range Types {
		if types[typ] == 0 {
			t.Errorf("no %s in %d seeds", typ, seeds)
		}
	}
}
