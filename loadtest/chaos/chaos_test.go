package chaos_test

import (
	"flag"
	"os/exec"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aguihub/aguihub/loadtest/chaos"
	"github.com/aguihub/aguihub/loadtest/process"
)

var (
	duration = flag.Duration("chaos", 9*time.Second, "how long each of the chaos tests makes trouble")
	seed     = flag.Uint64("chaos.seed", 3, "seed of the chaos tests; with this one what loses entries comes first, however few faults there are")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// binary builds the hub's program, once for all tests.
func binary(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not in PATH, and these tests don't skip without it: scripts/setup installs it")
	}
	program, err := process.BuildHub(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func TestChaosBreaksNoPromise(t *testing.T) {
	program := binary(t)
	for name, config := range map[string]chaos.Config{
		"a master with a replica": {Faults: []chaos.Fault{
			chaos.KillHub, chaos.Failover, chaos.Swap, chaos.Restart, chaos.Wipe, chaos.Trim, chaos.CutRedis,
		}},
		"a cluster whose slots move and whose nodes die": {Cluster: true},
		"a rolling restart":                 {Faults: []chaos.Fault{chaos.DrainHub}},
		"a redis that is away now and then": {Faults: []chaos.Fault{chaos.Restart, chaos.CutRedis}},
	} {
		t.Run(name, func(t *testing.T) {
			rolling := slices.Equal(config.Faults, []chaos.Fault{chaos.DrainHub})
			away := slices.Equal(config.Faults, []chaos.Fault{chaos.Restart, chaos.CutRedis})
			t.Parallel()
			config.Seed, config.Duration, config.Binary, config.Dir = *seed, *duration, program, t.TempDir()
			config.Length, config.Every = 200, time.Second
			config.Runs, config.Threads = 1, 1
			report, err := chaos.Run(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(report)
			if len(report.Violations) > 0 {
				t.Error("the contract was broken")
			}
			if report.Deliveries == 0 || report.Reconnects == 0 {
				t.Error("nothing was tried")
			}
			if rolling && (report.Lost > 0 || len(report.Resets) > 0 || report.Unfinished > 0) {
				t.Error("a rolling restart lost something")
			}
			if away && (report.Lost > 0 || len(report.Resets) > 0 || report.Closes["cut"] > 0) {
				t.Error("something that isn't so was said, or an attached socket was closed")
			}
			if !config.Cluster && !rolling && !away && len(report.Resets) == 0 { // a slot that moves loses nothing
				t.Error("nothing was lost, so that no reset was tried")
			}
		})
	}
}
