package sse

import (
	"strings"
	"testing"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

func TestALossUnderAStream(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		t.Run(map[string]string{
			"GET": "is an event named reset on GET", "POST": "ends the body on POST, whose reader takes no named events",
		}[method], func(t *testing.T) {
			f := start(t, backfill.Config{}, transport.Config{})
			f.Begin(t, "r1", "t1")
			kept := f.Append(t, "r1", tt.TextStart, tt.Text("a"))
			last := f.Append(t, "r1", tt.Text("lost"))
			var a *answered
			if method == "GET" {
				a = f.get(t, "/v1/runs/r1/sse")
			} else {
				a = f.post(t, "/v1/runs/r1/sse", `{"messages":[]}`)
			}
			a.until("id: " + last)
			at, err := stream.ParseCursor(kept)
			if err != nil {
				t.Fatal(err)
			}
			f.Log.Lose("r1", at.Entry)
			f.Append(t, "r1", tt.Text("later"))
			if method == "POST" {
				if rest := a.rest(); strings.TrimSpace(rest) != "" {
					t.Error(rest)
				}
				return
			}
			a.until("event: reset")
			a.until("id: ")
		})
	}
}
