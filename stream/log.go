package stream

// Record is what is appended: one event and, with the first of a run, the input that the run started from.
// The bytes are only read, until Append returns.
type Record struct {
	Event []byte // one JSON object; not checked here
	Input []byte // the RunAgentInput as JSON; nil means no field input
}

// Entry is a record as it stands in a stream. Its bytes are immutable and may be shared and kept.
type Entry struct {
	ID      ID
	Event   []byte
	Input   []byte // nil if the entry has no field input
	NoEvent bool   // the entry has no field event: whoever wrote it didn't mean an event
}

// size is what the entry's payload takes, in bytes.
func (e Entry) size() int { return len(e.Event) + len(e.Input) }

// Anchor says whether the entry after which a page was asked for is still there.
type Anchor int

const (
	// AnchorNone means that the page was asked for from the very start: there is nothing to be missing.
	AnchorNone Anchor = iota
	// AnchorHeld means that the entry is there (Page.AnchorEntry), so that nothing between it and the page
	// was lost. Whether it is the same entry as ever is for the caller to see, by its checksum.
	AnchorHeld
	// AnchorMissing means that the entry isn't there: trimmed, lost in a failover, or of another generation.
	// Entries between it and the page may be gone.
	AnchorMissing
)

// String returns the anchor's name.
func (a Anchor) String() string {
	switch a {
	case AnchorNone:
		return "none"
	case AnchorHeld:
		return "held"
	case AnchorMissing:
		return "missing"
	default:
		return "unknown"
	}
}

// Page is a part of a stream, in order.
type Page struct {
	Entries     []Entry
	Anchor      Anchor
	AnchorEntry Entry // where Anchor is AnchorHeld and the entry wasn't trimmed by a hub
	// AnchorSum is the checksum of that entry where Anchor is AnchorHeld. The last entry that a hub trimmed counts as held
	// as long as what came after it comes first.
	AnchorSum uint32
	More      bool // there may be entries behind the page: ask again after its last entry
}

// Bounds is the outline of one run's stream at one moment (on the embedded server Len may be older).
type Bounds struct {
	Run       RunID
	Exists    bool  // the key exists, though perhaps without entries
	WrongType bool  // the key is of another type; all else is zero
	First     Entry // zero where there are no entries
	Last      Entry // zero where there are no entries
	Len       int64 // number of entries
	Added     int64 // number of entries that there were, those that were trimmed included; 0 where the server can't tell
}

// Limits of one page. The numbers keep a page within what one reply may sensibly hold.
const (
	maxPageEntries = 10_000
	firstChunk     = 16      // entries before anything is known of their size: 16 × 8 MiB at worst
	chunkBytes     = 1 << 20 // what one reply aims at once sizes are known
)

// chunker reads from a stream, from and including from, at most count entries.
type chunker func(from ID, count int) ([]Entry, error)

// readPage reads a page in chunks whose size it learns from what it has seen, so that neither a page of small
// entries takes many round trips nor one of large entries much memory. Each chunk is anchored in the entry
// before it: if that was trimmed meanwhile the page ends there and the next one will say so.
func readPage(after ID, maxEntries, maxBytes int, read chunker) (Page, error) {
	maxEntries = min(max(maxEntries, 1), maxPageEntries)
	if maxBytes <= 0 {
		maxBytes = chunkBytes
	}
	var page Page
	from, anchored := after, !after.IsZero()
	if anchored {
		page.Anchor = AnchorMissing
	} else {
		from = ID{}.Next()
	}
	used, count := 0, firstChunk
	for {
		want := min(count, maxEntries-len(page.Entries)+1) // one more tells whether there is more
		if anchored {
			want++
		}
		chunk, err := read(from, want)
		if err != nil {
			return Page{}, err
		}
		full := len(chunk) == want
		if anchored {
			held := len(chunk) > 0 && chunk[0].ID == from
			switch {
			case held && len(page.Entries) == 0:
				page.Anchor, page.AnchorEntry = AnchorHeld, chunk[0]
			case !held && len(page.Entries) > 0:
				page.More = true
				return page, nil
			}
			if held {
				chunk = chunk[1:]
			}
		}
		for _, e := range chunk {
			if len(page.Entries) == maxEntries || len(page.Entries) > 0 && used+e.size() > maxBytes {
				page.More = true
				return page, nil
			}
			page.Entries = append(page.Entries, e)
			used += e.size()
		}
		if !full {
			return page, nil
		}
		from, anchored = page.Entries[len(page.Entries)-1].ID, true
		count = nextChunk(used, len(page.Entries), min(chunkBytes, maxBytes-used))
	}
}

// nextChunk returns how many entries of the average size seen fit into budget bytes.
func nextChunk(used, entries, budget int) int {
	average := max(used/entries, 64)
	return min(max(budget/average, 1), 1024)
}
