// Package process starts programs on this machine, finds out when they serve, and reads what they cost.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a server may take to serve.
const patience = time.Minute

// WaitFor polls until ok returns nil, for a minute at most.
func WaitFor(ctx context.Context, what string, ok func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		if !Pause(ctx, 10*time.Millisecond) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// Pause waits; false when ctx ended.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Ports that FreePort looks through: below those that the kernel gives to outgoing connections, of which a load has
// thousands, and one of them would soon have what was free a moment ago.
const (
	firstPort = 10_000
	ports     = 22_000
)

// FreePort is a port of loopback that nobody listens on now.
func FreePort(ctx context.Context) (port string, err error) {
	var config net.ListenConfig
	for range 100 {
		var l net.Listener
		port = strconv.Itoa(firstPort + rand.N(ports))
		if l, err = config.Listen(ctx, "tcp", "127.0.0.1:"+port); err == nil {
			_ = l.Close()
			return port, nil
		}
	}
	return "", fmt.Errorf("a free port: %w", err)
}

// BuildHub builds the hub's program into dir. It must be called inside the module.
func BuildHub(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "aguihub")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/aguihub/aguihub/cmd/aguihub").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return binary, nil
}

// Process is a program that runs. Its methods may be called by anyone at once.
type Process struct {
	Name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	log   *tail
}

// Start starts a program. What it writes is kept in part, for error messages, and copied to log where that isn't nil.
func Start(ctx context.Context, log io.Writer, program string, args ...string) (*Process, error) {
	p := &Process{Name: filepath.Base(program), ended: make(chan struct{}), log: &tail{copy: log}}
	// The end of ctx doesn't kill it: whoever started it stops it, after what still speaks with it.
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() { // it ends with the program, which Kill waits for
		_ = p.cmd.Wait() // how it ended is said by Serving
		close(p.ended)
	}()
	return p, nil
}

// errEnded says that a program ended by itself.
var errEnded = errors.New("it has ended")

// Serving waits until ok returns nil. Its error has what the program wrote last.
func (p *Process) Serving(ctx context.Context, ok func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-p.ended:
			cancel(errEnded)
		case <-stop:
		}
	}()
	err := WaitFor(ctx, p.Name, ok)
	if err != nil {
		return fmt.Errorf("%w: %w: %s", err, context.Cause(ctx), p.log)
	}
	return nil
}

// Output is the newest of what the program wrote.
func (p *Process) Output() string { return p.log.String() }

// Kill ends the program as a crash would, and waits for that: nothing that is measured here has anything to lose.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.ended
}

// CPU is how much processor time all threads of the program have taken so far, those that ended included.
func (p *Process) CPU() (time.Duration, error) { return cpu(p.cmd.Process.Pid) }

// Own is what the calling program itself has taken so far.
func Own() (time.Duration, error) { return cpu(os.Getpid()) }

// cpu reads the clock that Linux keeps for each process: nanoseconds, where /proc has hundredths of a second.
func cpu(pid int) (time.Duration, error) {
	clock := int32(^pid)<<3 | 2 //nolint:gosec // CPUCLOCK_SCHED of a process, as clock_getcpuclockid(3) makes it; pids are below 2^22
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("processor time of %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// RSS is the memory that the program holds, in bytes.
func (p *Process) RSS() (int, error) {
	path := fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)
	text, err := os.ReadFile(path) //nolint:gosec // of a process that was started here
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				return 0, fmt.Errorf("%s: %w", path, err)
			}
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("%s has no VmRSS", path)
}
