package compare

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is where a comparison ran, and with what.
type Machine struct {
	Processor  string `json:"processor"`
	Cores      int    `json:"cores"`
	Memory     string `json:"memory"`
	Kernel     string `json:"kernel"`
	Load       string `json:"load"` // averages when it began
	Go         string `json:"go"`
	Redis      string `json:"redis"`
	Centrifugo string `json:"centrifugo"`
	Commit     string `json:"commit"`
}

func describe(ctx context.Context, config Config) Machine {
	m := Machine{
		Processor: lineOf("/proc/cpuinfo", "model name"), Memory: gibibytes(lineOf("/proc/meminfo", "MemTotal")),
		Cores: runtime.NumCPU(), Go: runtime.Version(), Redis: output(ctx, "redis-server", "--version"),
		Commit: output(ctx, "git", "describe", "--always", "--dirty"),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(text))[:3], " ")
	}
	if config.Centrifugo != "" {
		m.Centrifugo = moduleOf(ctx, config.Centrifugo)
	}
	return m
}

// lineOf is the value that a file has behind a name, "" where it can't be read: it is told to people only.
func lineOf(file, name string) string {
	f, err := os.Open(file) //nolint:gosec // of /proc
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// gibibytes puts a size as the kernel tells it, "24683620 kB", into words; what it can't read stays as it is.
func gibibytes(size string) string {
	n, err := strconv.ParseFloat(strings.TrimSuffix(size, " kB"), 64)
	if err != nil {
		return size
	}
	return fmt.Sprintf("%.1f GiB of memory", n/(1<<20))
}

// output is what a program prints, "" where it can't be had.
func output(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output() //nolint:gosec // of the list above
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// moduleOf is the version of the peer's module that a program was built from.
func moduleOf(ctx context.Context, program string) string {
	for line := range strings.Lines(output(ctx, "go", "version", "-m", program)) {
		if f := strings.Fields(line); len(f) >= 3 && strings.HasPrefix(f[1], "github.com/centrifugal/centrifugo/") {
			return f[1] + " " + f[2]
		}
	}
	return program
}
