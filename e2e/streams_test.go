package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/oracle"
)

type event struct {
	Type, RunID string
	Delta       json.RawMessage
}

func eventOf(line []byte) event {
	var e event
	if json.Unmarshal(line, &e) != nil {
		return event{}
	}
	return e
}

// perJob bounds how many k's one publication serves, so that what waits for its end stays small.
const perJob = 24

// corpus gives the recorded streams of one run, or those of several.
func corpus(t *testing.T, several bool) []oracle.Stream {
	t.Helper()
	return slices.DeleteFunc(oracle.Corpus(t), func(s oracle.Stream) bool {
		return len(s.Lines) == 0 || len(s.Runs) > 1 != several || !strings.Contains(s.Name, *only)
	})
}

// generated gives so many streams for a version: of one run, or of several.
func generated(version string, n int, several bool) []oracle.Stream {
	var out []oracle.Stream
	for seed := range uint64(n) {
		opt := oracle.Options{Version: version}
		if !several {
			opt.Runs = 1
		}
		s := oracle.GenerateWith(*firstSeed+seed, opt)
		s.Name = fmt.Sprintf("generated-%s-%d", version, *firstSeed+seed)
		if len(s.Runs) > 1 == several && strings.Contains(s.Name, *only) {
			out = append(out, s)
		}
	}
	return out
}

// plan makes the jobs for a stream: every k in a sweep, else a few.
func plan(s oracle.Stream, versions []string, rng *rand.Rand) []job {
	if !*sweep {
		ks := []int{1 + rng.IntN(len(s.Lines)), 1 + rng.IntN(len(s.Lines))}
		if rng.IntN(4) == 0 {
			ks = append(ks, 1, len(s.Lines)-1, len(s.Lines))
		}
		return []job{{
			stream: s, withInput: rng.IntN(2) == 0, versions: []string{versions[rng.IntN(len(versions))]},
			wires: []oracle.Wire{wires[rng.IntN(2)]}, ks: ks, racers: rng.IntN(3) == 0,
		}}
	}
	var ks []int
	for k := range len(s.Lines) {
		ks = append(ks, k+1)
	}
	var out []job
	for part := range slices.Chunk(ks, perJob) {
		j := job{stream: s, versions: versions, wires: wires, ks: part, racers: true}
		out = append(out, j)
		if s.Runs == nil {
			continue // there is nothing to record an input with
		}
		j.withInput = true
		if len(versions) > 1 {
			j.versions = versions[:1] // what older clients make of an input they make of any message
		}
		out = append(out, j)
	}
	if len(versions) == 1 && versions[0] != oracle.V1 { // and these need not see each k twice
		odd := rng.IntN(2)
		out = slices.DeleteFunc(out, func(j job) bool { return j.withInput != ((j.ks[0]/perJob+odd)%2 == 0) })
	}
	return out
}

func TestAttachOverTheNetworkEndsEqualToWatching(t *testing.T) {
	m := newMeasure(t, 1)
	rng := rand.New(rand.NewPCG(*firstSeed, 1))
	var jobs []job
	for _, s := range corpus(t, false) {
		jobs = append(jobs, plan(s, versions, rng)...)
	}
	n := 12
	if *sweep {
		n = 200
	}
	for _, version := range versions {
		for _, s := range generated(version, n, false) {
			jobs = append(jobs, plan(s, []string{version}, rng)...)
		}
	}
	m.all(jobs, m.single)
	m.report()
}
