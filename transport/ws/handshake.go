package ws

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/gobwas/httphead"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"
	"go.uber.org/zap"

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

// accept upgrades the connection of a request that checkHandshake finds nothing wrong with; where that doesn't work it has
// been answered.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, p protocol, selected string) (*conn, bool) {
	answer := http.Header{}
	if selected != "" {
		answer.Set("Sec-WebSocket-Protocol", selected)
	}
	c := newConn(s, p)
	if agreed := agreeToDeflate(r.Header); agreed != "" && !s.config.Plain {
		c.deflates = true
		answer.Set("Sec-WebSocket-Extensions", agreed)
	}
	// The library looks at the first line of each only, and doesn't trim.
	plain := r.Clone(r.Context())
	plain.Header = http.Header{}
	plain.Header.Set("Connection", "Upgrade")
	plain.Header.Set("Upgrade", "websocket")
	plain.Header.Set("Sec-WebSocket-Version", "13")
	plain.Header.Set("Sec-WebSocket-Key", strings.TrimSpace(r.Header.Get("Sec-WebSocket-Key")))
	upgrader := ws.HTTPUpgrader{Timeout: s.config.WriteTimeout, Header: answer}
	conn, buffers, _, err := upgrader.Upgrade(plain, w)
	if err != nil {
		s.logger.Debug("upgrade", zap.Error(err))
		if conn != nil {
			_ = conn.Close()
		}
		return nil, false
	}
	c.socket = newSocket(s, conn)
	if n := buffers.Reader.Buffered(); n > 0 { // what net/http has read already
		head, err := buffers.Peek(n)
		if err != nil {
			_ = conn.Close()
			return nil, false
		}
		c.socket.head = bytes.Clone(head)
	}
	return c, true
}

// agreeToDeflate is what a client is answered that offers permessage-deflate in a way that can be had here, else nothing: RFC
// 7692, section 7.1. A window smaller than the largest can't; one of that size has to be named again.
func agreeToDeflate(h http.Header) string {
	for _, v := range h.Values("Sec-WebSocket-Extensions") {
		options, ok := httphead.ParseOptions([]byte(v), nil)
		if !ok {
			return ""
		}
		for i := range options {
			var p wsflate.Parameters
			if string(options[i].Name) != wsflate.ExtensionName || !wellFormed(options[i].Parameters) || p.Parse(options[i]) != nil {
				continue
			}
			const agreed = "permessage-deflate; client_no_context_takeover; server_no_context_takeover"
			switch {
			case !p.ServerMaxWindowBits.Defined():
				return agreed
			case p.ServerMaxWindowBits == maxWindowBits:
				return agreed + "; server_max_window_bits=15"
			}
		}
	}
	return ""
}

// wellFormed looks at what the library lets through and RFC 7692, section 7.1, doesn't: a parameter twice, and zeros in front
// of a number.
func wellFormed(parameters httphead.Parameters) bool {
	seen := map[string]bool{}
	ok := true
	parameters.ForEach(func(name, value []byte) bool {
		ok = !seen[string(name)] && !bytes.HasPrefix(value, []byte("0"))
		seen[string(name)] = true
		return ok
	})
	return ok
}

// maxWindowBits is deflate's own window, of 32 KiB.
const maxWindowBits = 15

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
	request.After, request.Catchup, request.Skips = q.After, q.Catchup, p == lines
	return request, nil
}
