package backfill

import (
	"context"
	"errors"
	"hash/maphash"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/stream"
)

// Scanner finds runs that nobody announced (stream.Redis).
type Scanner interface {
	Scan(ctx context.Context, page func([]stream.RunID) error) error
}

// discovery bounds: how often the key space is swept, at least; how long a page may be; and for how many runs it is
// remembered that they were seen (8 bytes each).
const (
	sweepEvery = 5 * time.Second
	pagePause  = 20 * time.Millisecond
	maxSeen    = 1 << 18
)

// Discover announces the runs that agents began with a plain XADD and nobody has attached to, so that lists and threads
// know them: it sweeps the key space, slowly, until ctx ends, and then returns ctx's error. A sweep begins sweepEvery
// after the last one ended, or later where it took long.
func (s *Service) Discover(ctx context.Context, log Scanner) error {
	d := discovery{service: s, seen: map[uint64]struct{}{}, there: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
	for {
		begun := time.Now()
		err := log.Scan(ctx, func(runs []stream.RunID) error { return d.page(ctx, runs) })
		if err == nil {
			d.swept()
		} else if ctx.Err() == nil {
			s.logger.Debug("sweeping for runs", zap.Error(err))
		}
		if err := sleep(ctx, sweepEvery+10*time.Since(begun)); err != nil {
			return err
		}
	}
}

type discovery struct {
	service *Service
	seed    maphash.Seed
	seen    map[uint64]struct{} // hashes of runs that are announced, or no runs, as of the last sweep
	there   map[uint64]struct{} // those of them that this sweep has met
	losses  int64               // as of the last look
}

// swept forgets the runs that the sweep hasn't met: should one come back it is another.
func (d *discovery) swept() {
	d.seen, d.there = d.there, d.seen
	clear(d.there)
}

// page looks at the runs that weren't seen before.
func (d *discovery) page(ctx context.Context, runs []stream.RunID) error {
	if losses := d.service.losses.Load(); losses != d.losses { // what was there may be there anew
		d.losses = losses
		clear(d.seen)
		clear(d.there)
	}
	for _, run := range runs {
		h := maphash.String(d.seed, string(run))
		if len(d.there) >= maxSeen {
			clear(d.there)
		}
		_, again := d.there[h]
		if _, before := d.seen[h]; again || before {
			d.there[h] = struct{}{}
			continue
		}
		known, err := d.meet(ctx, run)
		if err != nil {
			return err
		}
		if known {
			d.there[h] = struct{}{}
		}
	}
	return sleep(ctx, pagePause)
}

// meet announces a run that has started. known says that it needn't be looked at again.
func (d *discovery) meet(ctx context.Context, run stream.RunID) (known bool, err error) {
	page, err := d.service.log.Range(ctx, run, stream.ID{}, headEntries, headBytes)
	switch {
	case errors.Is(err, stream.ErrWrongType), errors.Is(err, stream.ErrDenied):
		return true, nil
	case err != nil: // Redis is away, or changes its roles: the next sweep looks again
		return false, ctx.Err()
	}
	st, ok, err := d.service.startOf(ctx, run, page.Entries)
	if err != nil {
		return false, ctx.Err()
	}
	if !ok {
		return d.meetUnbegun(ctx, run)
	}
	if st.thread == "" {
		return true, nil
	}
	listed, err := d.service.registry.Thread(ctx, st.thread, threadLimit)
	if err != nil {
		return false, ctx.Err()
	}
	if err := d.service.introduce(ctx, run, st, listed); err != nil {
		return false, ctx.Err()
	}
	return true, nil
}

// meetUnbegun looks at a run that doesn't begin with its first entries: it may be what came late for a deleted one.
func (d *discovery) meetUnbegun(ctx context.Context, run stream.RunID) (known bool, err error) {
	page, err := d.service.log.Range(ctx, run, stream.ID{}, historyEntries, historyBytes)
	if err != nil || len(page.Entries) == 0 || d.service.config.Store == nil {
		return false, ctx.Err()
	}
	if _, begins := findStart(page.Entries); !begins {
		_ = d.service.eraseLate(ctx, run, page.Entries[0].ID) // what failed is tried again in the next sweep
	}
	return page.More, ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
