package oracle

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// StartStock runs an agent of oracle/stock, which is built on the AG-UI SDK of others, until the test ends. It returns the
// address at which it takes a RunAgentInput.
func StartStock(tb testing.TB, script string) (url string) {
	tb.Helper()
	root, err := repoRoot()
	if err != nil {
		tb.Fatalf("oracle: %v", err)
	}
	dir := filepath.Join(root, "oracle", "stock")
	if err := install(dir); err != nil {
		tb.Fatalf("oracle: %v", err)
	}
	cmd := exec.Command("node", script) //nolint:noctx // it ends with its standard input
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatalf("oracle: %v", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatalf("oracle: %v", err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("oracle: %v", err)
	}
	tb.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		tb.Fatalf("oracle: %v", fmt.Errorf("%s: no address: %w", script, err))
	}
	return strings.TrimSpace(line)
}
