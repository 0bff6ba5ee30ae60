package publish_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// producerEnv makes a process of this test binary a producer: it is the URL of Redis.
const producerEnv = "AGUIHUB_TEST_PRODUCER"

// shortTTL is long enough for a producer on a busy machine to renew in time, and short enough to wait for.
const shortTTL = 2 * time.Second

// produce publishes one run after its start: events until it is told to end the run by a cancel, or can't. It prints what
// becomes of it.
func produce(url string) int {
	ctx := context.Background()
	log, err := stream.Connect(url, stream.Config{})
	if err != nil {
		panic(err)
	}
	p, err := publish.New(log, log.NewRegistry(nil), publish.Config{LeaseTTL: shortTTL, Poll: 50 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	run, err := p.Open(ctx, start)
	if err != nil {
		panic(err)
	}
	if err := run.Append(ctx, []byte(`{"type":"TEXT_MESSAGE_START","messageId":"m1"}`)); err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		if err := run.Append(ctx, []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"`+strconv.Itoa(i)+`"}`)); err != nil {
			fmt.Println("error:", err)
			return 1
		}
		if i == 3 {
			fmt.Println("publishing")
		}
		select {
		case <-run.Context().Done():
			fmt.Println("told:", context.Cause(run.Context()))
			fmt.Println("finish:", run.FinishCancelled(ctx))
			return 0
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// producer is a process that publishes.
type producer struct {
	cmd  *exec.Cmd
	out  *bufio.Scanner
	wait func() error
}

func startProducer(t *testing.T, url string) *producer {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), producerEnv+"="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	p := &producer{cmd: cmd, out: bufio.NewScanner(out), wait: sync.OnceValue(cmd.Wait)}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = p.wait() })
	wantText(t, p.line(t), "publishing")
	return p
}

func (p *producer) line(t *testing.T) string {
	t.Helper()
	if !p.out.Scan() {
		t.Fatal("the producer says nothing more")
	}
	return p.out.Text()
}

func (p *producer) signal(t *testing.T, s os.Signal) {
	t.Helper()
	ok(t, p.cmd.Process.Signal(s))
}

// hubs runs n reapers, each with connections of its own.
func hubs(t *testing.T, url string, n int) {
	t.Helper()
	for range n {
		log := connect(t, url)
		t.Cleanup(reap(t, log, log.NewRegistry(nil), 1, publish.ReaperConfig{LeaseTTL: shortTTL}))
	}
}

func connect(t *testing.T, url string) *stream.Redis {
	t.Helper()
	log, err := stream.Connect(url, stream.Config{})
	ok(t, err)
	t.Cleanup(func() { _ = log.Close() })
	return log
}

// ends counts a run's terminal events.
func ends(t *testing.T, log *stream.Redis) (n int, last string) {
	t.Helper()
	page, err := log.Range(t.Context(), "r1", stream.ID{}, 10_000, 64<<20)
	ok(t, err)
	for _, en := range page.Entries {
		var e struct{ Type, Code string }
		ok(t, json.Unmarshal(en.Event, &e))
		if strings.HasPrefix(e.Type, "RUN_") && e.Type != "RUN_STARTED" {
			n, last = n+1, e.Type+" "+e.Code
		}
	}
	return n, last
}

func TestAProducerThatIsKilled(t *testing.T) {
	for name, url := range servers(t) {
		t.Run(name, func(t *testing.T) {
			log := connect(t, url)
			hubs(t, url, 2)
			p := startProducer(t, url)
			p.signal(t, syscall.SIGKILL)
			killed := time.Now()
			_ = p.wait()
			streamtest.Eventually(t, "the run is ended", func() bool { n, _ := ends(t, log); return n > 0 })
			if took := time.Since(killed); took > 2*shortTTL+5*time.Second {
				t.Errorf("it took %v", took)
			}
			registry := log.NewRegistry(nil)
			streamtest.Eventually(t, "the end is announced", func() bool {
				events, _, err := registry.List(t.Context(), stream.ID{}, 1)
				return err == nil && events[0].State == stream.RunError
			})
			if n, last := ends(t, log); n != 1 || last != "RUN_ERROR producer_lost" {
				t.Errorf("%d ends, the last is %s", n, last)
			}
		})
	}
}

func TestAProducerThatIsStoppedForTooLongIsFenced(t *testing.T) {
	url := streamtest.StartRedis(t).URL()
	log := connect(t, url)
	hubs(t, url, 2)
	p := startProducer(t, url)
	p.signal(t, syscall.SIGSTOP)
	streamtest.Eventually(t, "the run is ended", func() bool { n, _ := ends(t, log); return n > 0 })
	p.signal(t, syscall.SIGCONT)
	for {
		line := p.line(t)
		if strings.HasPrefix(line, "error:") || strings.HasPrefix(line, "told:") {
			if !strings.Contains(line, publish.ErrFenced.Error()) {
				t.Error(line)
			}
			break
		}
	}
	_ = p.wait()
	if n, last := ends(t, log); n != 1 || last != "RUN_ERROR producer_lost" {
		t.Errorf("%d ends, the last is %s", n, last)
	}
}

func TestAProducerThatIsToldToCancel(t *testing.T) {
	url := streamtest.StartRedis(t).URL()
	log := connect(t, url)
	p := startProducer(t, url)
	_, err := log.RequestCancel(t.Context(), "r1", []byte(`{"type":"cancel","reason":"Enough.","by":"me"}`))
	ok(t, err)
	if line := p.line(t); !strings.HasSuffix(line, "Enough.") {
		t.Error(line)
	}
	wantText(t, p.line(t), "finish: <nil>")
	ok(t, p.wait())
	if n, last := ends(t, log); n != 1 || last != "RUN_FINISHED " {
		t.Errorf("%d ends, the last is %s", n, last)
	}
	events, _, err := log.NewRegistry(nil).List(t.Context(), stream.ID{}, 1)
	ok(t, err)
	wantText(t, string(events[0].State), "cancelled")
}

// servers are a Redis and the embedded one.
func servers(t *testing.T) map[string]string {
	t.Helper()
	e, err := stream.StartEmbedded("127.0.0.1:0")
	ok(t, err)
	t.Cleanup(e.Close)
	return map[string]string{"over Redis": streamtest.StartRedis(t).URL(), "over the embedded Redis": e.URL()}
}

// deaf is a proxy of Redis that swallows answers.
type deaf struct {
	addr    string
	swallow atomic.Int64 // so many connections that have something to answer are cut instead
	cut     atomic.Int64
}

// startDeaf starts a proxy in front of a server.
func startDeaf(t *testing.T, server string) *deaf {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	ok(t, err)
	d := &deaf{addr: l.Addr().String()}
	var group sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); group.Wait() })
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			back, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			var writes atomic.Bool // the client has sent a script that appends
			group.Go(func() {
				d.pump(client, back, func(b []byte) bool {
					if strings.Contains(string(b), "CONTENT") {
						writes.Store(true)
					}
					return true
				})
			})
			group.Go(func() {
				d.pump(back, client, func([]byte) bool {
					if writes.Swap(false) && d.swallow.Add(-1) >= 0 {
						d.cut.Add(1)
						return false
					}
					return true
				})
			})
		}
	})
	return d
}

func (d *deaf) pump(from, to net.Conn, pass func([]byte) bool) {
	defer func() { _ = from.Close(); _ = to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !pass(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func TestAnAppendWhoseAnswerIsLostIsNotDoubled(t *testing.T) {
	for name, url := range servers(t) {
		t.Run(name, func(t *testing.T) {
			d := startDeaf(t, strings.TrimPrefix(url, "redis://"))
			through, direct := connect(t, "redis://"+d.addr), connect(t, url)
			p, err := publish.New(through, through.NewRegistry(nil), publish.Config{})
			ok(t, err)
			run, err := p.Open(t.Context(), start)
			ok(t, err)
			ok(t, run.Append(t.Context(), []byte(`{"type":"TEXT_MESSAGE_START","messageId":"m1"}`)))
			ok(t, run.Flush(t.Context()))
			const n = 30
			for i := range n {
				d.swallow.Store(int64(i % 3)) // none, one, two in a row
				ok(t, run.Append(t.Context(), []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"`+strconv.Itoa(i)+`"}`)))
				ok(t, run.Flush(t.Context()))
			}
			ok(t, run.Finish(t.Context(), publish.End{}))
			ok(t, run.Close(t.Context()))
			page, err := direct.Range(t.Context(), "r1", stream.ID{}, 1000, 0)
			ok(t, err)
			if d.cut.Load() != n || len(page.Entries) != n+4 {
				t.Fatalf("%d answers lost, %d entries", d.cut.Load(), len(page.Entries))
			}
			for i := range n {
				if want := `"delta":"` + strconv.Itoa(i) + `"`; !strings.Contains(string(page.Entries[i+2].Event), want) {
					t.Fatalf("entry %d is %s", i+2, page.Entries[i+2].Event)
				}
			}
			if events, last := run.Written(); events != n+4 || last != page.Entries[n+3].ID {
				t.Errorf("Written is %d, %v", events, last)
			}
		})
	}
}
