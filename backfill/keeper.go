package backfill

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// Store keeps runs beside their streams (stream.Redis).
type Store interface {
	Checkpoint(ctx context.Context, run stream.RunID) (c stream.Checkpoint, ok, unknown bool, err error)
	PutCheckpoint(ctx context.Context, run stream.RunID, c stream.Checkpoint, running bool, keep int) (written bool, trimTo stream.ID, err error)
	TrimTo(ctx context.Context, run stream.RunID, at stream.ID) (int64, error)
	Trimmed(ctx context.Context, run stream.RunID) (t stream.Trimmed, ok, unknown bool, err error)
	Outline(ctx context.Context, run stream.RunID) (meta []byte, err error)
	Expire(ctx context.Context, run stream.RunID, keep time.Duration) (bool, error)
	Abandon(ctx context.Context, run stream.RunID, keep time.Duration) (bool, error)
	Revive(ctx context.Context, run stream.RunID) (bool, error)
	Erase(ctx context.Context, run stream.RunID, thread stream.ThreadID, keep time.Duration) error
	EraseLate(ctx context.Context, run stream.RunID, first stream.ID) (bool, error)
	EraseThread(ctx context.Context, thread stream.ThreadID) error
	Leave(ctx context.Context, thread stream.ThreadID, left stream.Left, keep time.Duration) error
	Left(ctx context.Context, thread stream.ThreadID) (left stream.Left, ok bool, err error)
}

// ErrNoStore says that the service has nothing to keep runs in.
var ErrNoStore = errors.New("backfill: nothing is kept beside the runs")

// When a checkpoint is due: after so many entries and half as many bytes as the fold weighs, so that its cost is shared
// by what it is of, or after that many bytes; at a run's end after fewer, since that run stays as it is.
const (
	dueEntries    = 1000
	dueBytes      = 1 << 20
	dueEndEntries = 256
	dueEndBytes   = 64 << 10
)

// growth is what came since a run's last checkpoint.
type growth struct{ entries, bytes int }

// maxPending bounds the runs whose checkpoint or end waits to be written down; each shares the bytes of its fold.
const maxPending = 256

// keeper writes down what is kept of runs, one at a time and beside the fan-out, which never waits for it.
type keeper struct {
	service *Service
	wake    chan struct{} // holds one token while there may be work
	end     context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	pending map[stream.RunID]*keeping

	written, bytes, read, damaged, failed, expired, trimmed, headless atomic.Int64
}

// keeping is what is to be done for one run: the newest of each.
type keeping struct {
	capture *capture // nil where there is nothing to write
	ended   bool
	sure    bool // its stream says that it ended
	goesOn  bool // it did after a long pause
	past    *past
}

// capture is a run at one entry, to be packed.
type capture struct {
	checkpoint *agui.Checkpoint
	cursor     stream.Cursor
	meta       checkpointMeta
	running    bool
}

func newKeeper(ctx context.Context, s *Service) *keeper {
	k := &keeper{service: s, wake: make(chan struct{}, 1), pending: map[stream.RunID]*keeping{}}
	ctx, k.end = context.WithCancel(ctx)
	if s.config.Store != nil {
		k.done.Go(func() { k.run(ctx) })
	}
	return k
}

func (k *keeper) close() {
	k.end()
	k.done.Wait()
}

// grown notes that a run has one more entry of some bytes, under its feed's lock.
func (k *keeper) grown(m *machine, bytes int, v agui.Verdict) {
	if k.service.config.Store == nil || !m.resolved {
		return
	}
	m.since.entries++
	m.since.bytes += bytes
	var c *capture
	// What isn't known of a run that was trimmed others may know, and have written down.
	if !k.service.config.NoCheckpoints && !m.headless && m.due(v.End) {
		c = &capture{checkpoint: m.run.Checkpoint(), cursor: m.cursor, meta: m.meta(), running: m.end.IsZero()}
		m.since = growth{}
	}
	switch over := v.End || v.Late; {
	case over:
		k.add(m.id, keeping{capture: c, ended: true, sure: true, past: k.service.pasts.get(m.id)})
	case c != nil:
		k.add(m.id, keeping{capture: c})
	}
}

// due says whether a checkpoint of the run is worth its while.
func (m *machine) due(end bool) bool {
	size := m.run.Size()
	switch g := m.since; {
	case size > m.service.config.MaxConversation:
		return false
	case end:
		return g.entries >= dueEndEntries || g.bytes >= dueEndBytes
	case g.entries >= dueEntries && g.bytes >= size/2:
		return true
	default:
		return g.bytes >= dueBytes && g.bytes >= size
	}
}

// ended notes that somebody announced the end of a run.
func (k *keeper) ended(run stream.RunID) {
	if k.service.config.Store != nil {
		k.add(run, keeping{ended: true})
	}
}

// goesOn notes that a run has an entry after a long pause.
func (k *keeper) goesOn(run stream.RunID) {
	if k.service.config.Store != nil {
		k.add(run, keeping{goesOn: true})
	}
}

func (k *keeper) add(run stream.RunID, more keeping) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.pending[run]
	if w == nil {
		if len(k.pending) >= maxPending {
			return // another hub, the next checkpoint or the janitor does it
		}
		w = &keeping{}
		k.pending[run] = w
	}
	if more.capture != nil {
		w.capture = more.capture
	}
	if more.past != nil {
		w.past = more.past
	}
	w.ended, w.sure, w.goesOn = w.ended || more.ended, w.sure || more.sure, w.goesOn || more.goesOn
	select {
	case k.wake <- struct{}{}:
	default: // a token is there already
	}
}

// forget drops what waits to be written of a run.
func (k *keeper) forget(run stream.RunID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pending, run)
}

func (k *keeper) next() (run stream.RunID, w *keeping) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for run, w = range k.pending {
		delete(k.pending, run)
		return run, w
	}
	return "", nil
}

func (k *keeper) run(ctx context.Context) {
	for {
		run, w := k.next()
		if w == nil {
			select {
			case <-ctx.Done():
				return
			case <-k.wake:
			}
			continue
		}
		if err := k.keep(ctx, run, w); err != nil && ctx.Err() == nil {
			k.failed.Add(1)
			k.service.logger.Warn("keeping a run", zap.String("run", string(run)), zap.Error(err))
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// keep writes one run's checkpoint and has it expire where it has ended.
func (k *keeper) keep(ctx context.Context, run stream.RunID, w *keeping) error {
	s := k.service
	if c := w.capture; c != nil {
		if err := k.write(ctx, run, c); err != nil && !errors.Is(err, agui.ErrCheckpointTooLarge) {
			return err
		}
	}
	if w.goesOn && !w.ended {
		return s.revive(ctx, run)
	}
	if !w.ended {
		return nil
	}
	if w.past != nil && s.config.ThreadRetention > 0 {
		if err := k.leave(ctx, w.past); err != nil && !errors.Is(err, agui.ErrCheckpointTooLarge) {
			return err
		}
	}
	if !w.sure { // somebody announced it
		bounds, err := s.log.Bounds(ctx, run)
		if err != nil || bounds[0].WrongType || !s.isEnd(bounds[0].Last) {
			return err
		}
	}
	set, err := s.config.Store.Expire(ctx, run, s.config.Retention)
	if set {
		k.expired.Add(1)
	}
	return err
}

func (k *keeper) write(ctx context.Context, run stream.RunID, c *capture) error {
	data, err := c.checkpoint.Pack(k.service.config.packLimit())
	if err != nil {
		return err
	}
	meta, err := c.meta.encode()
	if err != nil {
		return err
	}
	store := k.service.config.Store
	written, trimTo, err := store.PutCheckpoint(ctx, run,
		stream.Checkpoint{At: c.cursor.Entry, Sum: c.cursor.Sum, Entries: c.meta.Entries, Meta: meta, Data: data},
		c.running, k.service.config.keepEntries())
	if written {
		k.written.Add(1)
		k.bytes.Add(int64(len(data)))
	}
	if err != nil || trimTo.IsZero() {
		return err
	}
	n, err := store.TrimTo(ctx, run, trimTo)
	k.trimmed.Add(n)
	return err
}

// revive has a run not expire that goes on though it was abandoned.
func (s *Service) revive(ctx context.Context, run stream.RunID) error {
	revived, err := s.config.Store.Revive(ctx, run)
	if revived {
		s.logger.Info("a run that was abandoned goes on", zap.String("run", string(run)))
	}
	return err
}

// leave writes down what a run that has ended has left for the next of its thread.
func (k *keeper) leave(ctx context.Context, p *past) error {
	data, err := p.conversation.Pack(k.service.config.packLimit())
	if err != nil {
		return err
	}
	left := stream.Left{Run: p.run, Start: p.start, End: p.end, At: p.at, Data: data}
	return k.service.config.Store.Leave(ctx, p.thread, left, k.service.config.ThreadRetention)
}

// left is what the thread's newest finished run has left, where that had ended when st was written; else nil.
func (s *Service) left(ctx context.Context, run stream.RunID, st start) (*past, error) {
	if s.config.Store == nil {
		return nil, nil
	}
	left, ok, err := s.config.Store.Left(ctx, st.thread)
	if err != nil || !ok || left.Run == run || !left.Start.Less(st.id) || left.End.Ms > st.id.Ms {
		return nil, err
	}
	conversation, err := agui.UnpackConversation(left.Data, s.config.packLimit())
	if err != nil {
		s.keeper.damaged.Add(1)
		s.logger.Warn("what a thread's run has left can't be read", zap.String("thread", string(st.thread)), zap.Error(err))
		return nil, nil
	}
	return &past{run: left.Run, thread: st.thread, start: left.Start, end: left.End, at: left.At, conversation: conversation}, nil
}

// KeepFigures is a reading of what is kept beside runs, since start.
type KeepFigures struct {
	Written, Read int64 // checkpoints
	Bytes         int64 // of those written
	Damaged       int64 // checkpoints that couldn't be read: of another version, or broken
	Failed        int64 // attempts that Redis refused or cut
	Expired       int64 // runs whose expiry this hub set
	Trimmed       int64 // entries that this hub trimmed
	Headless      int64 // runs that this hub shows from the first entry that is left, for want of a checkpoint
}

// KeepFigures reads the figures.
func (s *Service) KeepFigures() KeepFigures {
	k := s.keeper
	return KeepFigures{
		Written: k.written.Load(), Bytes: k.bytes.Load(), Read: k.read.Load(), Damaged: k.damaged.Load(), Failed: k.failed.Load(), Expired: k.expired.Load(),
		Trimmed: k.trimmed.Load(), Headless: k.headless.Load(),
	}
}
