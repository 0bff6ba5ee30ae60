package console_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestBuiltIsCurrent builds the page anew: what is checked in, and served, is what the sources of the page and of the
// TypeScript client make.
func TestBuiltIsCurrent(t *testing.T) {
	install(t)
	fresh := t.TempDir()
	run(t, ui(t, "node", "build.mjs", fresh))
	names, err := os.ReadDir(fresh)
	if err != nil || len(names) != 3 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		want, err := os.ReadFile(filepath.Join(fresh, name.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join("dist", name.Name())); err != nil || !bytes.Equal(got, want) {
			t.Errorf("dist/%s isn't what the sources make (%v): run make console", name.Name(), err)
		}
	}
	run(t, ui(t, "npx", "--no-install", "tsc"))
}

// TestBrowser looks at the page in Chromium: ui/test says at what.
func TestBrowser(t *testing.T) {
	install(t)
	hub := filepath.Join(t.TempDir(), "aguihub")
	run(t, exec.CommandContext(t.Context(), "go", "build", "-o", hub, "../../cmd/aguihub"))
	npm := ui(t, "npm", "test")
	npm.Env = append(os.Environ(), "AGUIHUB_BIN="+hub)
	run(t, npm)
}

// install runs npm ci, unless the packages of the present lockfile are there.
func install(t *testing.T) {
	t.Helper()
	lock, err := os.ReadFile("ui/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lock)
	marker := filepath.Join("ui", "node_modules", ".installed-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(marker); err == nil {
		return
	}
	run(t, ui(t, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"))
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func ui(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = "ui"
	return cmd
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
