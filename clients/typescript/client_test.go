// Package typescript_test runs the tests of the TypeScript client together with those of the hub.
package typescript_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aguihub/aguihub/loadtest/process"
)

// TestClient runs npm test, with a hub of this tree. AGUIHUB_SWEEP=1 makes it the long form.
func TestClient(t *testing.T) { npm(t, "test") }

// TestBrowser runs the client, and the example without a build step, in Chromium.
func TestBrowser(t *testing.T) { npm(t, "run", "test:browser") }

// TestExamples reloads the chats with CopilotKit and with assistant-ui in mid-answer, in Chromium. Where scripts/setup hasn't
// been their packages are installed first: 880 MB, a minute or several.
func TestExamples(t *testing.T) { npm(t, "run", "test:examples") }

// hub is a hub of this tree, built once.
var hub string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "aguihub-typescript")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if hub, err = process.BuildHub(context.Background(), dir); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

// npm runs it with a hub of this tree.
func npm(t *testing.T, args ...string) {
	t.Helper()
	install(t)
	cmd := exec.CommandContext(t.Context(), "npm", args...)
	cmd.Env = append(os.Environ(), "AGUIHUB_BIN="+hub)
	run(t, cmd)
}

// install runs npm ci, unless the packages of the present lockfile are there.
func install(t *testing.T) {
	t.Helper()
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lock)
	marker := filepath.Join("node_modules", ".installed-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(marker); err == nil {
		return
	}
	run(t, exec.CommandContext(t.Context(), "npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"))
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs a command and shows what it said.
func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s", cmd, out)
	if err != nil {
		t.Fatal(err)
	}
}
