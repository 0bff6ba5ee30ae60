package backfill

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/stream"
)

// Tidier is where the janitor works (stream.Redis).
type Tidier interface {
	Scanner
	ScanThreads(ctx context.Context, page func([]stream.ThreadID) error) error
	Standings(ctx context.Context, runs ...stream.RunID) ([]stream.Standing, time.Time, error)
	Drop(ctx context.Context, thread stream.ThreadID, runs ...stream.RunID) error
	TakeTurn(ctx context.Context, what string, ttl time.Duration) (bool, error)
}

// TidyConfig says what the janitor takes for old.
type TidyConfig struct {
	// AbandonedAfter is for how long a run has had neither an entry nor a lease; 0 is 7 days.
	AbandonedAfter time.Duration
	// Every is the pause between two rounds, whichever hub makes them; 0 is 10 minutes.
	Every time.Duration
	// Grace is how old a run's place in its thread must be before it is dropped for want of a stream; 0 is an hour.
	Grace time.Duration
	// ThreadRetention is how old the newest must be. As long as it stands there it is known that there was something
	// before the thread's next run. 0 is 30 days; Grace holds where it is longer.
	ThreadRetention time.Duration
}

func (c *TidyConfig) fill() {
	if c.AbandonedAfter <= 0 {
		c.AbandonedAfter = 7 * 24 * time.Hour
	}
	if c.Every <= 0 {
		c.Every = 10 * time.Minute
	}
	if c.Grace <= 0 {
		c.Grace = time.Hour
	}
	if c.ThreadRetention == 0 {
		c.ThreadRetention = 30 * 24 * time.Hour
	}
}

// standingRuns is how many runs are looked at at once: each brings its newest entry whole.
const standingRuns = 50

// Tidy is the janitor: docs/contract.md, section 1, "Retention". It works until ctx ends, and then returns ctx's error.
// Of several hubs one at a time makes a round.
func (s *Service) Tidy(ctx context.Context, log Tidier, config TidyConfig) error {
	config.fill()
	for {
		turn, err := log.TakeTurn(ctx, "janitor", config.Every)
		if err == nil && turn {
			err = s.tidyRound(ctx, log, config)
		}
		if err != nil && ctx.Err() == nil {
			s.logger.Warn("tidying up", zap.Error(err))
		}
		if err := sleep(ctx, config.Every/4+time.Millisecond); err != nil {
			return err
		}
	}
}

func (s *Service) tidyRound(ctx context.Context, log Tidier, config TidyConfig) error {
	err := log.Scan(ctx, func(runs []stream.RunID) error {
		for len(runs) > 0 {
			n := min(standingRuns, len(runs))
			if err := s.tidyRuns(ctx, log, config, runs[:n]); err != nil {
				return err
			}
			runs = runs[n:]
		}
		return sleep(ctx, pagePause)
	})
	if err != nil {
		return err
	}
	return log.ScanThreads(ctx, func(threads []stream.ThreadID) error {
		for _, thread := range threads {
			if err := s.tidyThread(ctx, log, config, thread); err != nil {
				return err
			}
		}
		return sleep(ctx, pagePause)
	})
}

// tidyRuns has runs expire that have ended, and abandons those that nobody goes on with.
func (s *Service) tidyRuns(ctx context.Context, log Tidier, config TidyConfig, runs []stream.RunID) error {
	standings, now, err := log.Standings(ctx, runs...)
	if err != nil {
		return err
	}
	for _, st := range standings {
		if !st.Exists || st.Newest.ID.IsZero() || st.Expires && !st.Abandoned {
			continue
		}
		idle := now.Sub(time.UnixMilli(int64(min(st.Newest.ID.Ms, 1<<62))))
		abandoned := !st.Leased && idle >= config.AbandonedAfter
		ended := s.isEnd(st.Newest)
		if st.Abandoned {
			if !ended && !abandoned {
				if err := s.revive(ctx, st.Run); err != nil {
					return err
				}
			}
			continue
		}
		if !ended && !abandoned {
			continue
		}
		if !ended {
			thread, err := s.ThreadOf(ctx, st.Run)
			if err != nil {
				return err
			}
			info := stream.RunInfo{Run: st.Run, Thread: thread, State: stream.RunAbandoned}
			if err := s.registry.Announce(ctx, info); err != nil {
				return err
			}
		}
		expire := s.config.Store.Expire
		if !ended {
			expire = s.config.Store.Abandon
		}
		set, err := expire(ctx, st.Run, s.config.Retention)
		if err != nil {
			return err
		}
		if set {
			s.keeper.expired.Add(1)
		}
	}
	return nil
}

// tidyThread takes runs out of a thread whose streams are gone.
func (s *Service) tidyThread(ctx context.Context, log Tidier, config TidyConfig, thread stream.ThreadID) error {
	runs, err := s.registry.Thread(ctx, thread, maxErased)
	if err != nil {
		return ctx.Err() // a key of another type, most likely: it concerns this thread alone
	}
	for newest := true; len(runs) > 0; newest = false { // the one that started last comes first
		n := min(standingRuns, len(runs))
		ids := make([]stream.RunID, n)
		for i, r := range runs[:n] {
			ids[i] = r.Run
		}
		standings, now, err := log.Standings(ctx, ids...)
		if err != nil {
			return err
		}
		var gone []stream.RunID
		for i, st := range standings {
			keep := config.Grace
			if newest && i == 0 {
				keep = max(keep, config.ThreadRetention)
			}
			if !st.Exists && now.Sub(time.UnixMilli(runs[i].StartMs)) >= keep {
				gone = append(gone, st.Run)
			}
		}
		if err := log.Drop(ctx, thread, gone...); err != nil {
			return err
		}
		runs = runs[n:]
	}
	return nil
}
