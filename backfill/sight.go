package backfill

import (
	"bytes"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/hub"
)

// sight is how much of what it gets a subscriber may see: docs/contract.md, section 7.
type sight uint8

const (
	seesAll    sight = iota // where nobody is asked for a token
	seesInputs              // with the scope input: all but forwardedProps
	seesVeiled              // without it
)

func sightOf(g *auth.Grant) sight {
	switch {
	case g == nil || g.Open():
		return seesAll
	case g.May(auth.Input):
		return seesInputs
	default:
		return seesVeiled
	}
}

// delivery is a delivery as it is seen, made once for all who see alike.
func (s sight) delivery(d *hub.Delivery) *hub.Delivery {
	switch s {
	case seesInputs:
		return d.Shown(0, func(d *hub.Delivery) *hub.Delivery { return changed(d, agui.WithoutProps, false) })
	case seesVeiled:
		return d.Shown(1, func(d *hub.Delivery) *hub.Delivery { return changed(d, agui.Veiled, true) })
	default:
		return d
	}
}

// changed is a delivery whose events are changed: the same one where nothing is. A veil hides private events, too, and the
// words that say what is wrong with an event, which may quote it.
func changed(d *hub.Delivery, change func([]byte) []byte, veil bool) *hub.Delivery {
	out := &hub.Delivery{
		ID: d.ID, Cursor: d.Cursor, Reason: d.Reason, Detail: d.Detail, End: d.End, Restart: d.Restart, Note: d.Note,
	}
	same := true
	if veil && d.Detail != "" {
		out.Detail, same = "", false
	}
	for i, e := range d.Events {
		var c []byte
		if !veil || d.Private == nil || !d.Private[i] {
			c = change(e)
		}
		same = same && bytes.Equal(c, e)
		if c != nil {
			out.Events = append(out.Events, c)
		}
	}
	if same {
		return d
	}
	return out
}

// view is a view as it is seen. What a view restates of inputs, forwardedProps are no part of.
func (s sight) view(v *agui.View) *agui.View {
	if s == seesVeiled {
		return v.Veiled()
	}
	return v
}
