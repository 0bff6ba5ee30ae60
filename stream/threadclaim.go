package stream

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// auxActive is who starts a run in a thread, for as long as the run can't be seen in other ways. Its value is the version,
// the claim's token, which is of one attempt only, and the run.
const (
	auxActive     = "active"
	activeVersion = "1"
)

// ThreadClaim is an attempt to start a run in a thread. The zero value is none.
type ThreadClaim struct {
	Token string // [0-9A-Za-z]+, of this attempt alone
	Run   RunID
}

func (c ThreadClaim) String() string {
	if c == (ThreadClaim{}) {
		return ""
	}
	return activeVersion + ":" + c.Token + ":" + string(c.Run)
}

func parseThreadClaim(text string) ThreadClaim {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) != 3 || parts[0] != activeVersion {
		return ThreadClaim{}
	}
	run, err := ParseRunID(parts[2])
	if err != nil {
		return ThreadClaim{}
	}
	return ThreadClaim{Token: parts[1], Run: run}
}

// claimThreadScript: KEYS active; ARGV the claim, TTL (ms), the claim that is over, the version with its colon. What another
// version wrote is taken for nothing.
var claimThreadScript = redis.NewScript(`
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] and held ~= ARGV[3] and string.sub(held, 1, #ARGV[4]) == ARGV[4] then return held end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ''
`)

// keepThreadScript: KEYS active; ARGV the claim, TTL (ms; "0": let go of it).
var keepThreadScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then redis.call('DEL', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
`)

// eraseClaimScript: KEYS active; ARGV the run.
var eraseClaimScript = redis.NewScript(`
local held = redis.call('GET', KEYS[1])
if held and string.match(held, '^%w+:%w+:(.*)$') == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
`)

// ClaimThread claims a thread for ttl, unless another claim holds it, which is returned then; that over holds it, whose run
// has ended, doesn't count. Of several who try at once one gets a zero claim back. It may be repeated.
func (l *Redis) ClaimThread(ctx context.Context, thread ThreadID, c, over ThreadClaim, ttl time.Duration) (ThreadClaim, error) {
	held, err := claimThreadScript.Run(ctx, l.commands, []string{l.keys.ThreadAux(thread, auxActive)},
		c.String(), max(ttl.Milliseconds(), 1), over.String(), activeVersion+":").Text()
	return parseThreadClaim(held), classify(ctx, "claim thread", err)
}

// KeepThread has a claim hold for ttl from now on, or with 0 lets go of it. It returns false where the claim doesn't hold
// any more.
func (l *Redis) KeepThread(ctx context.Context, thread ThreadID, c ThreadClaim, ttl time.Duration) (bool, error) {
	held, err := keepThreadScript.Run(ctx, l.commands, []string{l.keys.ThreadAux(thread, auxActive)},
		c.String(), ttl.Milliseconds()).Int()
	return held == 1, classify(ctx, "keep thread", err)
}

// memoryClaim is a claim in a Memory.
type memoryClaim struct {
	ThreadClaim
	until time.Time
}

// ClaimThread claims as [Redis.ClaimThread] does.
func (m *Memory) ClaimThread(ctx context.Context, thread ThreadID, c, over ThreadClaim, ttl time.Duration) (ThreadClaim, error) {
	if err := ctx.Err(); err != nil {
		return ThreadClaim{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now()
	if held, ok := m.claims[thread]; ok && now.Before(held.until) && held.ThreadClaim != c && held.ThreadClaim != over {
		return held.ThreadClaim, m.fault
	}
	if m.fault == nil {
		m.claims[thread] = memoryClaim{c, now.Add(ttl)}
	}
	return ThreadClaim{}, m.fault
}

// KeepThread keeps as [Redis.KeepThread] does.
func (m *Memory) KeepThread(ctx context.Context, thread ThreadID, c ThreadClaim, ttl time.Duration) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now()
	if held, ok := m.claims[thread]; m.fault != nil || !ok || held.ThreadClaim != c || !now.Before(held.until) {
		return false, m.fault
	}
	if ttl == 0 {
		delete(m.claims, thread)
	} else {
		m.claims[thread] = memoryClaim{c, now.Add(ttl)}
	}
	return true, nil
}
