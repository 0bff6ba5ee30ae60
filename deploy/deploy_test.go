// Package deploy_test checks what is deployed against what there is: rules, dashboard and runbooks against each other, and
// against a hub that a Prometheus scrapes. Without prometheus and promtool it fails; scripts/setup installs them.
package deploy_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// program finds a program that these tests need.
func program(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Fatalf("%s is not in PATH, and these tests don't skip without it: scripts/setup installs it", name)
	}
	return path
}

func read(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// found lists what a pattern's group matches, each once.
func found(pattern, text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The rule: an alert has a runbook, a test that it fires, and a test that it stays quiet; and a runbook has its alert.
func TestEachAlertHasItsRunbookAndItsTests(t *testing.T) {
	t.Parallel()
	alerts := found(`(?m)^ +- alert: (\w+)$`, read(t, "prometheus/alerts.yml"))
	if len(alerts) < 20 {
		t.Fatalf("only %d alerts were found", len(alerts))
	}
	runbooks := read(t, "../docs/runbooks.md")
	tests := read(t, "prometheus/alerts_test.yml") + read(t, "prometheus/slow_test.yml")
	for _, a := range alerts {
		if !strings.Contains(runbooks, "\n## "+a+"\n") {
			t.Errorf("%s has no section in docs/runbooks.md", a)
		}
		if !strings.Contains(read(t, "prometheus/alerts.yml"), "docs/runbooks.md#"+strings.ToLower(a)+"\n") {
			t.Errorf("%s doesn't point to its section", a)
		}
		if !regexp.MustCompile(`alertname: ` + a + `\n +exp_alerts:\n +- exp_labels`).MatchString(tests) {
			t.Errorf("no test has %s fire", a)
		}
		if !strings.Contains(tests, "alertname: "+a+"\n        exp_alerts: []\n") {
			t.Errorf("no test has %s stay quiet", a)
		}
	}
	for _, section := range found(`(?m)^## (\w+)$`, runbooks) {
		if !slices.Contains(alerts, section) {
			t.Errorf("docs/runbooks.md has a section %s, and there is no such alert", section)
		}
	}
}

// The rule: what Prometheus is given is valid, and every alert does what its tests say.
func TestPromtool(t *testing.T) {
	t.Parallel()
	promtool := program(t, "promtool")
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"},
		{"check", "rules", "rules.yml", "alerts.yml"},
		{"test", "rules", "alerts_test.yml", "slow_test.yml"},
	} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
