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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a server may take to serve.
const patience = 2 * time.Minute

// WaitFor polls until ok returns nil, for two minutes at most.
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

// Ports that FreePort looks through: those, and the ones on which nodes of a Redis Cluster at them speak with each other,
// are below those that the kernel gives to outgoing connections, of which a load has thousands, and one of them would soon
// have what was free a moment ago, or what a server left that is to start again.
const (
	firstPort = 10_000
	ports     = 10_000
	toBus     = 10_000 // from the port of a node to that of the cluster's bus
)

// lastPort is the one that was given last: from one place in each program, so that whoever asks at the same time gets others.
var lastPort atomic.Int64

func init() { lastPort.Store(rand.Int64N(ports)) }

// FreePort is a port of loopback that nobody listens on now, nor on that of its cluster's bus, and that wasn't given before.
func FreePort(ctx context.Context) (port string, err error) {
	for range 100 {
		n := firstPort + int(lastPort.Add(1)%ports)
		if err = freeWithBus(ctx, n); err == nil {
			return strconv.Itoa(n), nil
		}
	}
	return "", fmt.Errorf("a free port: %w", err)
}

// freeWithBus fails where somebody listens on a port or on that of its cluster's bus.
func freeWithBus(ctx context.Context, port int) error {
	for _, p := range []int{port, port + toBus} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err != nil {
			return fmt.Errorf("port %d: %w", p, err)
		}
		_ = l.Close()
	}
	return nil
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

// Pid is the program's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

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

// Answers takes what a redis-server told of "server" and "persistence" by INFO. It fails unless that is the program, and not
// another one that has its port, and has read its data.
func (p *Process) Answers(info string, err error) error {
	switch {
	case err != nil:
		return err
	case !strings.Contains(info, "process_id:"+strconv.Itoa(p.Pid())+"\r\n"):
		return errors.New("another program has the port")
	case !strings.Contains(info, "\nloading:0\r\n"): // beside async_loading:0
		return errors.New("it reads its data")
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
