package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/checker"
	"github.com/aguihub/aguihub/loadtest/process"
	"github.com/aguihub/aguihub/stream"
)

// runsOfThread is how many runs a thread has, one after the other; between them its subscribers wait.
const runsOfThread = 3

// oneThread has the runs of one thread published, one after the other, and followed as a thread, and judges.
func (w *world) oneThread(ctx context.Context, lane, n int) {
	name := fmt.Sprintf("chaos-t%d-%d", lane, n)
	var thread checker.Thread
	w.mu.Lock()
	var runs []*producer
	for i := range runsOfThread {
		p := &producer{
			run: fmt.Sprintf("%s-%d", name, i), thread: name, input: lane%2 == 0, ofThread: true,
			archive: checker.NewArchive(w.losses), client: w.client, rate: w.config.Rate, length: w.config.Length / runsOfThread,
		}
		if i > 0 {
			p.after = runs[i-1]
		}
		runs = append(runs, p)
		thread.Add(stream.RunID(p.run), p.archive)
		w.producers[p] = struct{}{}
	}
	w.mu.Unlock()
	done := make(chan struct{})
	var publishing, reading sync.WaitGroup
	publishing.Go(func() { w.published(inTurn(ctx, runs, done)) })
	last := stream.RunID(runs[len(runs)-1].run)
	readers := make([]*checker.Subscriber, w.config.Readers)
	for i := range readers {
		s := checker.NewThreadSubscriber(fmt.Sprintf("%s reader %d", name, i), name, last, w.hubsNow, habitsOf(i), w.seedOf(lane+1000, n, i))
		readers[i] = s
		reading.Go(func() { s.Follow(ctx, [...]checker.Wire{checker.Socket, checker.Socket, checker.SSE}[i%3]) })
	}
	reading.Wait()
	close(done)
	publishing.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range runs {
		delete(w.producers, p)
		w.report.Runs++
		w.report.Events += p.archive.Events()
	}
	w.report.Threads++
	for _, s := range readers {
		w.verdict(s, thread.Judge(s))
	}
}

// inTurn publishes the runs one after the other, going back to one that lost its end, until done is closed.
func inTurn(ctx context.Context, runs []*producer, done <-chan struct{}) error {
	var current *producer
	for {
		p := firstOpen(runs)
		if p != current && current != nil && !process.Pause(ctx, rand.N(1500*time.Millisecond)) {
			return ctx.Err()
		}
		if current = p; p == nil {
			p = runs[0] // it has nothing to do, but perhaps later
		}
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

// firstOpen is the first run that hasn't ended, nil where all have.
func firstOpen(runs []*producer) *producer {
	for _, p := range runs {
		if !p.ended.Load() {
			return p
		}
	}
	return nil
}

// introduce announces a thread's run, as a publisher does: where one that nobody announced is short, and the next one is
// announced, nobody knows of it in time. It tries until the servers have both; an announcement that comes twice is one.
func (p *producer) introduce(ctx context.Context) error {
	for {
		pipe := p.client.Pipeline()
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: "agui:runs", Values: []string{"run", p.run, "thread", p.thread, "state", "started"}})
		pipe.ZAddNX(ctx, "agui:thread:"+p.thread, redis.Z{Score: float64(time.Now().UnixMilli()), Member: p.run})
		if _, err := pipe.Exec(ctx); err == nil {
			return nil
		}
		if !process.Pause(ctx, retry) {
			return ctx.Err()
		}
	}
}
