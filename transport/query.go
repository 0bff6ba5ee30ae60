package transport

import (
	"net/http"
	"net/url"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
)

// AttachQuery is the query of an attach: docs/contract.md, section 3.
type AttachQuery struct {
	After     string // as it was sent; it may be no cursor at all
	Catchup   backfill.Catchup
	FromStart bool
	Head      stream.RunID // "" unless another branch of a thread is followed
	Raw       bool
}

// ParseAttach reads the query. thread says whether a thread is attached to. An empty value is as good as none, and
// unknown names are ignored.
func ParseAttach(r *http.Request, thread bool) (AttachQuery, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return AttachQuery{}, BadRequest("bad_query", "the query can't be read")
	}
	q := AttachQuery{After: values.Get("after"), Catchup: backfill.CatchupSnapshot}
	switch v := backfill.Catchup(values.Get("catchup")); v {
	case "":
	case backfill.CatchupSnapshot, backfill.CatchupEvents, backfill.CatchupAuto:
		q.Catchup = v
	default:
		return q, BadRequest("bad_query", "catchup must be snapshot, events or auto")
	}
	switch values.Get("from") {
	case "", "snapshot":
	case "start":
		q.FromStart = true
	default:
		return q, BadRequest("bad_query", "from must be snapshot or start")
	}
	switch values.Get("raw") {
	case "", "0":
	case "1":
		q.Raw = true
	default:
		return q, BadRequest("bad_query", "raw must be 0 or 1")
	}
	if head := values.Get("head"); head != "" {
		if !thread {
			return q, BadRequest("bad_query", "head is for threads")
		}
		if q.Head, err = stream.ParseRunID(head); err != nil {
			return q, BadRequest("bad_query", "head must be a run id")
		}
	}
	return q, nil
}
