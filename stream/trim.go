package stream

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// The hashes that a trim of a run needs, both checkpoints like auxCheckpoint: auxTrim is the one that the next trim goes
// to, auxTrimmed the one that the last trim went to. The latter stands for the run's first entries from then on, and has
// next and nextsum beside it, the entry that came first when the trim was done: where that one still comes first nothing
// is missing behind the checkpoint, whoever else may have trimmed.
const (
	auxTrim    = "trim"
	auxTrimmed = "trimmed"
)

// Trimmed is what stands for the entries of a run that a hub trimmed: the run as of the last of them.
type Trimmed struct {
	Checkpoint
	Next    ID     // the entry that comes first now
	NextSum uint32 // its checksum
}

// precedes says whether the entry is the one that comes right after what was trimmed.
func (t Trimmed) precedes(en Entry) bool {
	return !t.At.IsZero() && en.ID == t.Next && Checksum(en.Event) == t.NextSum
}

// trimScript: KEYS stream, checkpoint, trim, trimmed, producer; ARGV version, entry to trim to, next entry, its sum,
// fence version. It looks again whether there is a newer checkpoint, of an entry that is there, and whether the two
// entries still follow each other. Else it returns -1, and forgets a place for a trim whose entry is gone.
var trimScript = redis.NewScript(`
local h, c = redis.call('HMGET', KEYS[3], 'v', 'at'), redis.call('HMGET', KEYS[2], 'v', 'at')
if h[1] ~= ARGV[1] or h[2] ~= ARGV[2] then return -1 end
local e = redis.call('XRANGE', KEYS[1], ARGV[2], '+', 'COUNT', 2)
if not e[2] or e[1][1] ~= ARGV[2] or e[2][1] ~= ARGV[3] then
  redis.call('DEL', KEYS[3])
  return -1
end
if c[1] ~= ARGV[1] or not c[2] or c[2] == ARGV[2] then return -1 end
local n = redis.call('XRANGE', KEYS[1], c[2], c[2])
if not n[1] or #redis.call('XRANGE', KEYS[1], ARGV[3], c[2], 'COUNT', 1) == 0 then return -1 end
redis.call('RENAME', KEYS[3], KEYS[4])
redis.call('HSET', KEYS[4], 'next', ARGV[3], 'nextsum', ARGV[4])
local left = redis.call('PTTL', KEYS[1])
if left > 0 then redis.call('PEXPIRE', KEYS[4], left) else redis.call('PERSIST', KEYS[4]) end
local before = redis.call('XLEN', KEYS[1])
local gone = redis.call('XTRIM', KEYS[1], 'MINID', ARGV[3])
local p = redis.call('HMGET', KEYS[5], 'v', 'len')
if p[1] == ARGV[5] and tonumber(p[2]) == before then redis.call('HSET', KEYS[5], 'len', before - gone) end
return gone
`)

// TrimTo removes the run's entries up to and including at, which [Redis.PutCheckpoint] has said is the place to trim to,
// and returns how many they were: none where anything is otherwise than it was then. The checkpoint as of at stands for
// them from then on.
func (l *Redis) TrimTo(ctx context.Context, run RunID, at ID) (int64, error) {
	c, ok, _, err := l.checkpoint(ctx, run, auxTrim)
	if err != nil || !ok || c.At != at {
		return 0, err
	}
	ms, err := readOne(ctx, l, func(pipe redis.Pipeliner) *redis.XMessageSliceCmd {
		return pipe.XRangeN(ctx, l.keys.Run(run), at.String(), "+", 2)
	}).Result()
	if err != nil {
		return 0, classify(ctx, "trim", err)
	}
	messages, err := messagesOf(ms)
	if err != nil {
		return 0, err
	}
	if !c.followed(messages) {
		return 0, classify(ctx, "trim", l.commands.Unlink(ctx, l.keys.Aux(run, auxTrim)).Err())
	}
	keys := []string{l.keys.Run(run)}
	for _, aux := range [...]string{auxCheckpoint, auxTrim, auxTrimmed, auxProducer} {
		keys = append(keys, l.keys.Aux(run, aux))
	}
	next := messages[1]
	n, err := trimScript.Run(ctx, l.commands, keys, checkpointVersion, at.String(), next.id.String(), hexSum(next.sum()), fenceVersion).Int64()
	return max(n, 0), classify(ctx, "trim", err)
}

// followed says whether two messages are the entry that the checkpoint is of and one behind it.
func (c Checkpoint) followed(ms []message) bool {
	return len(ms) == 2 && ms[0].id == c.At && ms[0].sum() == c.Sum
}

// Trimmed reads what stands for the entries of a run that were trimmed; ok and unknown are those of [Redis.Checkpoint].
func (l *Redis) Trimmed(ctx context.Context, run RunID) (t Trimmed, ok, unknown bool, err error) {
	fields, err := readOne(ctx, l, func(pipe redis.Pipeliner) *redis.SliceCmd {
		return pipe.HMGet(ctx, l.keys.Aux(run, auxTrimmed), slices.Concat(markFields, checkpointFields)...)
	}).Result()
	if err := classify(ctx, "trimmed", err); err != nil {
		if errors.Is(err, ErrWrongType) {
			return t, false, true, nil
		}
		return t, false, false, err
	}
	t = markOf(fields[:len(markFields)])
	t.Checkpoint, ok, unknown = checkpointOf(fields[len(markFields):])
	return t, ok && !t.Next.IsZero(), unknown || ok && t.Next.IsZero(), nil
}

// trimMark reads of what stands for a run's trimmed entries where they ended; zero where there are none.
func (l *Redis) trimMark(ctx context.Context, run RunID) (Trimmed, error) {
	fields, err := readOne(ctx, l, func(pipe redis.Pipeliner) *redis.SliceCmd {
		return pipe.HMGet(ctx, l.keys.Aux(run, auxTrimmed), markFields...)
	}).Result()
	if err := classify(ctx, "trimmed", err); err != nil {
		return Trimmed{}, err
	}
	return markOf(fields), nil
}

var markFields = []string{"v", "at", "sum", "next", "nextsum"}

// markOf reads markFields; zero where they aren't what they should be.
func markOf(fields []any) (t Trimmed) {
	var text [5]string
	for i := range min(len(fields), len(text)) {
		text[i], _ = fields[i].(string)
	}
	at, atErr := ParseID(text[1])
	next, nextErr := ParseID(text[3])
	sum, sumErr := strconv.ParseUint(text[2], 16, 32)
	nextSum, nextSumErr := strconv.ParseUint(text[4], 16, 32)
	if text[0] != checkpointVersion || errors.Join(atErr, nextErr, sumErr, nextSumErr) != nil {
		return t
	}
	t.At, t.Sum, t.Next, t.NextSum = at, uint32(sum), next, uint32(nextSum)
	return t
}

func hexSum(sum uint32) string { return strconv.FormatUint(uint64(sum), 16) }

// settleAnchor gives a page that was asked for behind the last trimmed entry its anchor.
func settleAnchor(page *Page, after ID, mark func() (Trimmed, error)) error {
	switch {
	case page.Anchor == AnchorHeld:
		page.AnchorSum = Checksum(page.AnchorEntry.Event)
		return nil
	case page.Anchor != AnchorMissing || len(page.Entries) == 0:
		return nil
	}
	t, err := mark()
	if err != nil && !errors.Is(err, ErrWrongType) {
		return err
	}
	if t.At == after && t.precedes(page.Entries[0]) {
		page.Anchor, page.AnchorSum = AnchorHeld, t.Sum
	}
	return nil
}

// trimAnchors looks once more at the positions where nothing stands: the last entry that was trimmed is as good as there.
func trimAnchors(ctx context.Context, pipe redis.Pipeliner, at []position, out []anchor) error {
	var which []int
	var marks []*redis.SliceCmd
	var firsts []*redis.XMessageSliceCmd
	for i, a := range out {
		if a.held || a.unread {
			continue
		}
		which = append(which, i)
		marks = append(marks, pipe.HMGet(ctx, auxOf(at[i].key, auxTrimmed), markFields...))
		firsts = append(firsts, pipe.XRangeN(ctx, at[i].key, "-", "+", 1))
	}
	if len(which) == 0 {
		return nil
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for n, i := range which {
		err := classify(ctx, "verify", errors.Join(marks[n].Err(), firsts[n].Err()))
		if concernsKey(err) {
			continue // then nothing stands there
		}
		if err != nil {
			return err
		}
		first, err := onlyEntry(firsts[n].Val())
		if err != nil {
			return err
		}
		if t := markOf(marks[n].Val()); t.At == at[i].after && t.precedes(first) {
			out[i] = anchor{held: true, sum: t.Sum}
		}
	}
	return nil
}

// Outline reads what a run's checkpoints say of it beside its fold (Checkpoint.Meta), of the newest one that there is, for
// a run whose first entries are gone; nil where there is none.
func (l *Redis) Outline(ctx context.Context, run RunID) (meta []byte, err error) {
	for _, aux := range [...]string{auxCheckpoint, auxTrimmed} {
		fields, err := readOne(ctx, l, func(pipe redis.Pipeliner) *redis.SliceCmd {
			return pipe.HMGet(ctx, l.keys.Aux(run, aux), "v", "meta")
		}).Result()
		if err = classify(ctx, "outline", err); err != nil && !errors.Is(err, ErrWrongType) {
			return nil, err
		}
		if len(fields) == 2 && fields[0] == checkpointVersion {
			if text, ok := fields[1].(string); ok {
				return []byte(text), nil
			}
		}
	}
	return nil, nil
}
