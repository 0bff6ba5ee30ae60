package aguihub_test

import (
	"os"
	"strings"
	"testing"
)

// broke are the cases at which other hubs broke, and where each is tested: the file, and the name of the test or subtest in
// it. A case without a test isn't covered, whatever else happens to meet it.
var broke = []struct{ what, file, test string }{
	{"publish between history and live", "backfill/handover_test.go", `"what is published between history and live comes once"`},
	{"the boundary id twice", "backfill/handover_test.go", `"the entry at the boundary of two pages comes once"`},
	{"trim during a paged backfill", "backfill/handover_test.go", `"a trim in the middle of the past is said or does no harm"`},
	{"attach before the first entry", "backfill/handover_test.go", "TestAttachBeforeTheFirstEntry"},
	{"terminal event during the handover", "backfill/handover_test.go", `"a terminal event during the handover is told once and ends the session"`},
	{"cursor at the last trimmed entry", "backfill/trim_test.go", "TestATrimmedRunIsTheSameToWhoeverAttaches"},
	{"cursor at the first kept entry", "backfill/resume_test.go", `"a cursor at the first entry that is kept continues, one before it is trimmed"`},
	{"cursor ahead of the tail", "backfill/resume_test.go", `"a cursor ahead of the newest entry"`},
	{"cursor of another generation", "backfill/resume_test.go", `"a cursor of another generation"`},
	{"close in mid-backfill", "backfill/handover_test.go", `"closing the session in the middle of the past leaves nothing behind"`},
	{"drain in mid-backfill", "backfill/handover_test.go", `"closing the service in the middle of the past ends the session"`},
	{"token expiry in mid-backfill", "transport/ws/keeper_test.go", `"whose token ends in the middle of the past are closed then"`},
	{"two attaches to one run on one client", "backfill/handover_test.go", `"two attaches to one run on one client get the same, each by itself"`},
	{"last one leaves while a new one comes", "hub/hub_test.go", `"the last one leaves while a new one comes: the feed is kept, and read on once"`},
	{"slow client overflows while backfilling", "backfill/resume_test.go", `"one that overflows while its past is sent is brought on behind it"`},
	{"key expires", "backfill/between_test.go", `"isn't an expiry"`},
	{"key is recreated", "backfill/lost_test.go", `"a run whose key is recreated is followed anew"`},
	{"malformed entry", "backfill/handover_test.go", `"an entry that is withheld is said and passed"`},
	{"redis reconnect between pages", "backfill/handover_test.go", `"a server that goes away between pages costs time, nothing else"`},
	{"failover loses the tail", "backfill/lost_test.go", `"a failover that loses the tail is a reset, and what is left is restated"`},
	{"failover loses the tail between two runs", "backfill/between_test.go", "TestALossBetweenTwoRuns"},
	{"lost wake-up", "stream/tail_test.go", "TestALostWakeUpCostsABlock"},
	{"XADD retried", "backfill/handover_test.go", `"of appends that were tried again the start restarts, the opening and the end are withheld"`},
	{"zombie producer", "publish/process_test.go", "TestAProducerThatIsStoppedForTooLongIsFenced"},
	{"equal milliseconds", "hub/feed_test.go", `"many entries of one millisecond keep their order over pages and tail"`},
	{"ring wraps at the join", "hub/feed_test.go", `"a reader who pages towards a ring that moves on meets it without a gap or a repeat"`},
	{"100,000-entry backlog under a 1 MiB queue", "backfill/handover_test.go", `"a backlog of 100,000 entries goes through a queue of 1 MiB"`},
	{"gauges drift", "hub/hub_test.go", "TestGaugesDoNotDrift"},
}

func TestEachCaseThatBrokeOthersHasATest(t *testing.T) {
	for _, c := range broke {
		source, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(source), c.test) {
			t.Errorf("%s: there is no test %s in %s", c.what, c.test, c.file)
		}
	}
}
