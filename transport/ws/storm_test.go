package ws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

// stutter is a connection that holds little, and is read with pauses.
type stutter struct {
	net.Conn
	random *rand.Rand
}

// Read implements net.Conn.
func (s stutter) Read(p []byte) (int, error) {
	if s.random.IntN(4) == 0 {
		time.Sleep(time.Duration(s.random.IntN(1000)) * time.Microsecond)
	}
	return s.Conn.Read(p[:min(len(p), 1+s.random.IntN(8<<10))])
}

// small has a connection hold little of what comes.
func small(c net.Conn) error {
	return c.(*net.TCPConn).SetReadBuffer(4 << 10)
}

// stuttering attaches a reader to r1 whose connection goes from a hand to a goroutine of its own and back all the time.
func (f *fixture) stuttering(t *testing.T, seed uint64, path, protocol string) *raw {
	t.Helper()
	r := f.raw(t, path, protocol)
	if err := small(r.Conn); err != nil {
		t.Fatal(err)
	}
	r.Conn = stutter{r.Conn, rand.New(rand.NewPCG(seed, 0))}
	return r
}

// shrink has the hub's sockets hold little of what isn't read yet.
func (f *fixture) shrink(t *testing.T) {
	t.Helper()
	for _, c := range f.server.snapshot(nil) {
		var err error
		if e := c.socket.raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 4<<10)
		}); e != nil || err != nil {
			t.Fatal(e, err)
		}
	}
}

// tail reads text messages up to the close frame.
func (r *raw) tail(each func(message string)) (out []string) {
	for {
		op, b := r.frame()
		switch op {
		case opText:
			out = append(out, string(b))
			each(string(b))
		case opClose:
			return out
		}
	}
}

// rush appends events of all sizes to r1, one in so many of them large. It returns them, and the text that they make.
func (f *fixture) rush(t *testing.T, events, oneIn int) (sent []string, text string) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 7))
	var all strings.Builder
	for i := 0; i < events; {
		var batch []string
		for range 1 + random.IntN(8) {
			size := random.IntN(200)
			if random.IntN(oneIn) == 0 {
				size = random.IntN(40 << 10)
			}
			delta := fmt.Sprintf("%d:%s;", i, strings.Repeat("é", size/2))
			all.WriteString(delta)
			batch = append(batch, tt.Text(delta))
			i++
		}
		f.Append(t, "r1", batch...)
		sent = append(sent, batch...)
		if random.IntN(10) == 0 {
			time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
		}
	}
	return sent, all.String()
}

// TestWhatStutteringReadersGet: between a hand and a goroutine of the connection's own nothing is lost, repeated or torn (I1).
func TestWhatStutteringReadersGet(t *testing.T) {
	const readers, events = 4, 60
	for _, protocol := range []string{bareName, linesName} {
		t.Run("who keep up, on "+protocol, func(t *testing.T) {
			f := start(t, backfill.Config{Hub: hub.Config{QueueBytes: 64 << 20}}, transport.Config{})
			f.Begin(t, "r1", "t1")
			f.Append(t, "r1", tt.TextStart)
			all := make([]*raw, readers)
			for i := range all {
				all[i] = f.stuttering(t, uint64(i), "/v1/runs/r1/ws", protocol)
			}
			f.begun(t, readers)
			f.shrink(t)
			var reading sync.WaitGroup
			got := make([]string, readers)
			for i, r := range all {
				reading.Go(func() { got[i] = strings.Join(eventsOf(r.tail(func(string) {})), "\n") })
			}
			sent, _ := f.rush(t, events, 20)
			last := []string{tt.TextEnd, tt.Finished("r1", "t1")}
			f.Append(t, "r1", last...)
			sent = append(sent, last...)
			reading.Wait()
			for i := range got {
				if want := strings.Join(sent, "\n"); !strings.HasSuffix(got[i], "\n"+want) || strings.Count(got[i], "\n") != len(sent)+3 {
					t.Errorf("reader %d got something else: %d bytes in %d events for %d in %d", i, len(got[i]), strings.Count(got[i], "\n"), len(want), len(sent))
				}
			}
		})
	}
	t.Run("who lag", func(t *testing.T) {
		f := start(t, backfill.Config{Hub: hub.Config{QueueBytes: 48 << 10}}, transport.Config{})
		f.Begin(t, "r1", "t1")
		f.Append(t, "r1", tt.TextStart)
		all := make([]*raw, readers)
		for i := range all {
			all[i] = f.stuttering(t, uint64(i), "/v1/runs/r1/ws?catchup="+[]string{"snapshot", "events", "auto"}[i%3], linesName)
		}
		f.begun(t, readers)
		f.shrink(t)
		var reading sync.WaitGroup
		got := make([][]string, readers)
		var batch []string // more at once than is kept for anybody
		text := ""
		for i := range 10 {
			delta := fmt.Sprint(i, ":", strings.Repeat("x", 10<<10), ";")
			batch, text = append(batch, tt.Text(delta)), text+delta
		}
		f.Append(t, "r1", batch...)
		var caughtUp sync.WaitGroup
		for i, r := range all {
			caughtUp.Add(1)
			once := sync.OnceFunc(caughtUp.Done)
			reading.Go(func() {
				defer once()
				lives := 0
				got[i] = r.tail(func(message string) {
					if lives += strings.Count(message, `{"control":"live"`); lives == 2 {
						once()
					}
				})
			})
		}
		caughtUp.Wait()
		_, more := f.rush(t, 20, 100)
		text += more
		f.Append(t, "r1", tt.TextEnd, tt.Finished("r1", "t1"))
		reading.Wait()
		ended, lagged := 0, 0
		for i := range got {
			held, done := textOf(t, got[i])
			lagged += strings.Count(strings.Join(got[i], "\n"), `{"control":"catchup"`) - 1
			if done {
				ended++
			}
			if done && held != text || !strings.HasPrefix(text, held) {
				t.Errorf("reader %d holds %d bytes of %d, ended %v", i, len(held), len(text), done)
			}
		}
		if t.Logf("%d of %d readers came to the end; they lagged %d times", ended, readers, lagged); ended < readers || lagged < readers {
			t.Error("not what was to be tried")
		}
	})
}

// begun waits until so many connections rest.
func (f *fixture) begun(t *testing.T, n int64) {
	t.Helper()
	for f.server.Figures().Open < n || f.Service.Figures().Subscribers < n {
		time.Sleep(time.Millisecond)
	}
	f.atRest()
}

// eventsOf are the events in messages of either subprotocol.
func eventsOf(messages []string) (out []string) {
	for _, m := range messages {
		for l := range strings.SplitSeq(m, "\n") {
			var in struct {
				Control string          `json:"control"`
				Event   json.RawMessage `json:"event"`
			}
			switch err := json.Unmarshal([]byte(l), &in); {
			case err != nil:
				out = append(out, "torn: "+l)
			case in.Event != nil:
				out = append(out, string(in.Event))
			case in.Control == "":
				out = append(out, l)
			}
		}
	}
	return out
}

// textOf is what a client holds of message m, and whether it saw the run's end.
func textOf(t *testing.T, messages []string) (text string, done bool) {
	t.Helper()
	var b bytes.Buffer
	for _, e := range eventsOf(messages) {
		var in struct {
			Type, Delta string
			Messages    []struct{ ID, Content string }
		}
		if err := json.Unmarshal([]byte(e), &in); err != nil {
			t.Fatalf("%v: %s", err, e)
		}
		switch in.Type {
		case "TEXT_MESSAGE_CONTENT":
			b.WriteString(in.Delta)
		case "MESSAGES_SNAPSHOT":
			b.Reset()
			for _, m := range in.Messages {
				if m.ID == "m" {
					b.WriteString(m.Content)
				}
			}
		case "RUN_FINISHED":
			done = true
		}
	}
	return b.String(), done
}

// TestHundredsThatComeAndGo: whenever and however a peer goes, nothing of it is left.
func TestHundredsThatComeAndGo(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	f.Append(t, "r1", tt.TextStart)
	const peers = 300
	stop := make(chan struct{})
	var publishing, leaving sync.WaitGroup
	publishing.Go(func() {
		large := tt.Text(strings.Repeat("x", 30<<10))
		for i := 0; ; i++ {
			if i == 500 { // the conversation stays one that can be attached to, however long this takes
				large = `{"type":"CUSTOM","name":"n","value":"` + strings.Repeat("x", 30<<10) + `"}`
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				f.Append(t, "r1", tt.Text("a"), large)
			}
		}
	})
	slots := make(chan struct{}, 20)
	for i := range peers {
		slots <- struct{}{}
		leaving.Go(func() {
			defer func() { <-slots }()
			random := rand.New(rand.NewPCG(uint64(i), 1))
			path := []string{"/v1/runs/r1/ws", "/v1/threads/t1/ws", "/v1/runs/none/ws", "/v1/threads/none/ws"}[random.IntN(4)]
			r := f.raw(t, path, []string{bareName, linesName}[random.IntN(2)])
			comeAndGo(t, r, random)
		})
	}
	leaving.Wait()
	close(stop)
	publishing.Wait()
	deadline := time.Now().Add(closeWait + time.Minute)
	for f.server.Figures().Open > 0 || f.Service.Figures().Subscribers > 0 || goroutines(t) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("left: %+v, %d goroutines", f.server.Figures(), goroutines(t))
		}
		time.Sleep(5 * time.Millisecond)
	}
	// And who comes then is served.
	p := f.dial(t, "/v1/runs/r1/ws", linesName)
	p.until("live")
	f.Append(t, "r1", tt.Text("still here"))
	p.until("TEXT_MESSAGE_CONTENT")
}

// comeAndGo is one peer, which does something and goes in some way.
func comeAndGo(t *testing.T, r *raw, random *rand.Rand) {
	t.Helper()
	tcp := r.Conn.(*net.TCPConn)
	if random.IntN(2) == 0 {
		_ = r.SetReadDeadline(time.Now().Add(time.Duration(random.IntN(20)) * time.Millisecond))
		for b := make([]byte, 1+random.IntN(64<<10)); ; {
			if _, err := r.Read(b); err != nil {
				break
			}
		}
	}
	switch random.IntN(5) { // the hub may have closed it
	case 0:
		_, _ = r.Write(masked(final|opPing, []byte("x")))
	case 1:
		_, _ = r.Write(masked(final|opText, []byte(`{"control":"ping"}`)))
	case 2:
		_, _ = r.Write([]byte{0x01, 0x85, 0, 0}) // and no more of it
	case 3:
		_, _ = r.Write(masked(opText, []byte("half a message")))
	}
	switch random.IntN(5) {
	case 0:
		_ = tcp.SetLinger(0) // a reset
	case 1:
		_, _ = r.Write(masked(final|opClose, []byte{0x03, 0xe8}))
	case 2:
		_ = tcp.CloseWrite()
		_ = r.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		_, _ = r.Read(make([]byte, 10))
	case 3:
		_, _ = r.Write(masked(final|0x3, nil)) // that there isn't
	}
	_ = r.Close()
}
