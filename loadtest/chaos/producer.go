package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/checker"
	"github.com/aguihub/aguihub/loadtest/process"
	"github.com/aguihub/aguihub/stream"
)

// producer publishes one run as a plain agent does, with XADD, and brings it to its end through all faults.
type producer struct {
	run      string
	thread   string
	input    bool      // its start has one, so that its history is known
	ofThread bool      // it is one of a thread's that is followed: it announces itself, and isn't to be trimmed
	after    *producer // of the run before it in its thread, which must have ended; nil for none
	archive  *checker.Archive
	client   redis.UniversalClient
	rate     float64 // events a second
	length   int     // events

	mu      sync.Mutex // held while it publishes: whoever holds it finds nothing on its way
	n       int        // counter of the newest event
	starts  int
	restart int // begin anew after so many events more; 0 for not
	started bool
	ended   atomic.Bool // written with p.mu held
}

func (p *producer) key() string { return "agui:run:" + p.run }

// pad makes CUSTOM events large enough that a reader who pauses lags.
var pad = strings.Repeat("x", 12_000)

// next is the event that comes next, with the counter that it would have.
func (p *producer) next() (checker.Entry, string) {
	n := p.n + 1
	message := p.message()
	switch {
	case !p.started:
		return checker.Entry{Kind: checker.Start}, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, p.thread, p.run)
	case n >= p.length:
		return checker.Entry{Kind: checker.End}, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, p.thread, p.run)
	case n == p.length-1:
		return checker.Entry{Kind: checker.Close}, fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","messageId":%q}`, message)
	}
	e := checker.Entry{N: n, Message: message}
	switch n % 4 {
	case 0:
		e.Kind = checker.State
		return e, fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{"n":%d}}`, n)
	case 1:
		e.Kind = checker.Custom
		return e, fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":{"n":%d,"pad":%q}}`, n, pad)
	default:
		e.Kind = checker.Text
		return e, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":%q,"delta":%q}`, message, checker.TextOf(n))
	}
}

// message is the id of the message that the run writes since it began, or began anew.
func (p *producer) message() string { return fmt.Sprintf("%s-m%d", p.run, p.starts) }

// values are an entry's fields.
func (p *producer) values(e checker.Entry, event string) []string {
	values := []string{"event", event}
	if e.Kind == checker.Start && p.input {
		values = append(values, "input",
			fmt.Sprintf(`{"threadId":%q,"runId":%q,"state":{},"messages":[],"tools":[],"context":[],"forwardedProps":{}}`, p.thread, p.run))
	}
	return values
}

// step publishes the next event. After an error the same one comes again, unless it is there.
func (p *producer) step(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended.Load() {
		return nil
	}
	if !p.started && p.after != nil && !p.after.ended.Load() {
		return nil // its end was lost while this step waited
	}
	if p.restart > 0 {
		if p.restart--; p.restart == 0 {
			p.started = false
		}
	}
	begins := !p.started
	if begins {
		p.starts++
	}
	entry, event := p.next()
	if err := p.publish(ctx, entry, event); err != nil {
		return err
	}
	if begins {
		p.started = true
		if p.ofThread {
			if err := p.introduce(ctx); err != nil {
				return err
			}
		}
		message := p.message()
		open := fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":%q,"role":"assistant"}`, message)
		return p.publish(ctx, checker.Entry{Kind: checker.Open, Message: message}, open)
	}
	p.n++
	p.ended.Store(entry.Kind == checker.End)
	return nil
}

// appendScript: KEYS stream; ARGV the id of its newest entry, "" for none, and the entry's fields. It appends the entry
// unless something came since, so that an append that was taken for lost and arrives late can't double one.
var appendScript = redis.NewScript(`
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if newest and newest[1] ~= ARGV[1] or not newest and ARGV[1] ~= '' then return '' end
return redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2))
`)

// publish appends one event and, where the answer is lost, finds out whether it is there, however long that takes.
func (p *producer) publish(ctx context.Context, e checker.Entry, event string) error {
	before, err := p.newest(ctx)
	for ; err != nil; before, err = p.newest(ctx) {
		if !process.Pause(ctx, retry) {
			return ctx.Err()
		}
	}
	args := []any{before}
	for _, v := range p.values(e, event) {
		args = append(args, v)
	}
	for {
		id, err := appendScript.Eval(ctx, p.client, []string{p.key()}, args...).Text()
		if err != nil && !refused(err) || err == nil && id == "" {
			id, err = p.newest(ctx)
		}
		if err == nil && id != before {
			return p.published(e, before, id)
		}
		if !process.Pause(ctx, retry) {
			return ctx.Err()
		}
	}
}

// published notes that an entry is there. Nothing is lost but by the faults that hold all producers, so that an older
// entry in its place is a fault of the servers or of this test.
func (p *producer) published(e checker.Entry, before, id string) error {
	var last stream.ID
	var err error
	if before != "" {
		if last, err = stream.ParseID(before); err != nil {
			return err
		}
	}
	if id != "" {
		if e.ID, err = stream.ParseID(id); err != nil {
			return err
		}
	}
	if !last.Less(e.ID) {
		return fmt.Errorf("%s: Redis lost what was behind %q, up to %s, though no fault did that", p.run, id, before)
	}
	p.archive.Add(e)
	return nil
}

// retry is the pause between two tries.
const retry = 20 * time.Millisecond

// refused says whether the server answered, so that nothing was appended.
func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// newestScript: KEYS stream. Its first line has a replica refuse it, whose answer may be of yesterday.
var newestScript = redis.NewScript(`#!lua
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return newest and newest[1] or ''
`)

// newest is the id of the run's newest entry, "" where there is none.
func (p *producer) newest(ctx context.Context) (string, error) {
	return newestScript.Eval(ctx, p.client, []string{p.key()}).Text()
}

// Run publishes until done is closed or ctx ends; after the run's end it goes on only where that was lost.
func (p *producer) Run(ctx context.Context, done <-chan struct{}) error {
	for {
		if err := p.some(ctx); err != nil {
			return err
		}
		select {
		case <-done:
			return nil
		default:
		}
		if !process.Pause(ctx, p.gap()) {
			return ctx.Err()
		}
	}
}

// gap is the pause between two events.
func (p *producer) gap() time.Duration { return time.Duration(float64(time.Second) / p.rate) }

// some publishes the next event, or now and then a burst.
func (p *producer) some(ctx context.Context) error {
	burst := 1
	if rand.IntN(200) == 0 {
		burst = 120
	}
	for range burst {
		if err := p.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// trim cuts the run's stream behind its newest entries, as an agent may, and has the run begin anew soon.
func (p *producer) trim(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started || p.ended.Load() || p.n >= p.length-1 { // then its message is closed, and nothing more can be said
		return nil
	}
	const keep = 5
	first, ok := p.archive.Trim(keep)
	if !ok {
		return nil
	}
	p.restart = 25
	p.length = max(p.length, p.n+2*p.restart) // so that it does
	return p.client.XTrimMinID(ctx, p.key(), first.String()).Err()
}

// survive looks what is left of the run after a loss. The caller holds p.mu.
func (p *producer) survive(ctx context.Context, client redis.UniversalClient) (lost int, err error) {
	ms, err := client.XRange(ctx, p.key(), "-", "+").Result()
	if err != nil {
		return 0, err
	}
	there := make(map[stream.ID]bool, len(ms))
	for _, m := range ms {
		id, err := stream.ParseID(m.ID)
		if err != nil {
			return 0, err
		}
		there[id] = true
	}
	at, err := client.HGet(ctx, "{"+p.key()+"}:trimmed", "at").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	if last, err := stream.ParseID(at); err == nil { // a checkpoint stands for what hubs have trimmed
		p.archive.Stands(there, last)
	}
	left := p.archive.Survive(there)
	p.started = left.Started
	if p.n >= p.length-1 && !left.Ended {
		p.ended.Store(false)
		p.length = p.n + 4 // the end comes again, and a little before it
		if left.Started && left.Closed {
			p.length = p.n + 1 // of which nothing more can be said
		}
	}
	return left.Lost, nil
}
