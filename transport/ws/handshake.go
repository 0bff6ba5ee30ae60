package ws

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
)

// protocol is what the messages of a connection are.
type protocol uint8

const (
	bare  protocol = iota // one event a message
	lines                 // event and control lines
)

// Names of the subprotocols: docs/contract.md, section 3. A token may be offered as one, too; it is never selected.
const (
	bareName  = "ag-ui.v1.json"
	linesName = "ag-ui.hub.v1.json"
)

// checkHandshake looks at what RFC 6455, section 4.2.1, asks of a request, so that what is wrong is answered with a
// problem. header is the answer's.
func checkHandshake(header http.Header, r *http.Request) error {
	if !r.ProtoAtLeast(1, 1) || r.ProtoMajor != 1 || !hasToken(r.Header, "Connection", "upgrade") ||
		!hasToken(r.Header, "Upgrade", "websocket") || r.Method != http.MethodGet {
		header.Set("Connection", "Upgrade")
		header.Set("Upgrade", "websocket")
		return &transport.Error{
			Status: http.StatusUpgradeRequired, Code: "upgrade_required",
			Message: "this is a WebSocket; without one there is the same at …/sse",
		}
	}
	if r.Header.Get("Sec-WebSocket-Version") != "13" {
		header.Set("Sec-WebSocket-Version", "13")
		return &transport.Error{
			Status: http.StatusUpgradeRequired, Code: "upgrade_required", Message: "only version 13 of WebSocket is spoken",
		}
	}
	keys := r.Header.Values("Sec-WebSocket-Key")
	if len(keys) != 1 {
		return transport.BadRequest("bad_handshake", "there must be one Sec-WebSocket-Key")
	}
	if key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(keys[0])); err != nil || len(key) != 16 {
		return transport.BadRequest("bad_handshake", "Sec-WebSocket-Key must be 16 bytes in base64")
	}
	return nil
}

func hasToken(h http.Header, name, token string) bool {
	for _, t := range tokens(h, name) {
		if strings.EqualFold(t, token) {
			return true
		}
	}
	return false
}

// tokens are the elements of a header field that is a list.
func tokens(h http.Header, name string) (out []string) {
	for _, v := range h.Values(name) {
		for t := range strings.SplitSeq(v, ",") {
			if t = strings.TrimSpace(t); t != "" {
				out = append(out, t)
			}
		}
	}
	return out
}

// selectProtocol takes the first subprotocol offered that the hub speaks. selected is how the client wrote it, empty
// where it asked for none.
func selectProtocol(r *http.Request) (p protocol, selected string, err error) {
	offered := false
	for _, name := range tokens(r.Header, "Sec-WebSocket-Protocol") {
		switch {
		case strings.EqualFold(name, bareName):
			return bare, name, nil
		case strings.EqualFold(name, linesName):
			return lines, name, nil
		case !strings.HasPrefix(name, transport.BearerProtocol):
			offered = true
		}
	}
	if offered {
		return bare, "", transport.BadRequest("bad_subprotocol", "the subprotocols are "+bareName+" and "+linesName)
	}
	return bare, "", nil
}

// parseRequest reads the path and the query. What is wrong is told after the upgrade: browsers don't show a page the
// answer to a refused handshake.
func parseRequest(r *http.Request, thread bool, p protocol) (backfill.Request, error) {
	var request backfill.Request
	var err error
	if thread {
		request.Thread, err = transport.ThreadID(r)
	} else {
		request.Run, err = transport.RunID(r)
	}
	if err != nil {
		return request, err
	}
	q, err := transport.ParseAttach(r, thread)
	if err != nil {
		return request, err
	}
	if p == bare && q.After != "" {
		return request, transport.BadRequest("bad_query", "after is for the subprotocol "+linesName)
	}
	request.Head, request.FromStart, request.Raw = q.Head, q.FromStart, q.Raw
	request.After, request.Catchup = q.After, q.Catchup
	return request, nil
}
