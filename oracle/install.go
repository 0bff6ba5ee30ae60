package oracle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// errNoRoot is what a test gets that runs outside of the repository.
var errNoRoot = errors.New("no go.mod above the working directory")

// repoRoot is the folder of go.mod above the working directory, which for a test is its package's folder.
func repoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errNoRoot
		}
		dir = up
	}
}

// install runs npm ci in dir unless the packages of the present lockfile are there. Test binaries of several packages take turns.
func install(dir string) error {
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return fmt.Errorf("lockfile: %w", err)
	}
	sum := sha256.Sum256(lock)
	marker := filepath.Join(dir, "node_modules", ".installed-"+hex.EncodeToString(sum[:8]))
	if exists(marker) {
		return nil
	}
	unlock, err := lockFile(filepath.Join(dir, ".install.lock"))
	if err != nil {
		return fmt.Errorf("install lock: %w", err)
	}
	defer unlock()
	if exists(marker) { // another binary was first
		return nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm installs the official client, and isn't on the PATH: %w", err)
	}
	cmd := exec.Command(npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts") //nolint:noctx // bounded by the test's own timeout
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci in oracle/%s (does it reach a package registry?): %w\n%s", filepath.Base(dir), err, out)
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		return fmt.Errorf("install marker: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
