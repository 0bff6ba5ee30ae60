package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/aguihub/aguihub/stream"
)

// maxAnswer bounds the JSON answers that the tools read.
const maxAnswer = 16 << 20

// hubFlag is the hub that a tool talks to.
type hubFlag struct {
	URL   string `default:"http://127.0.0.1:8080" placeholder:"URL" help:"The hub (${default})."`
	Token string `placeholder:"TOKEN" help:"Token to show to the hub. Other users of the machine can't see it in AGUIHUB_TOKEN."`
}

// show adds the token, where there is one.
func (h hubFlag) show(header http.Header) {
	if h.Token != "" {
		header.Set("Authorization", "Bearer "+h.Token)
	}
}

// defaultHub is where tools look for a hub.
const defaultHub = "http://127.0.0.1:8080"

// elsewhere is what a command line needs to name the same hub.
func (h hubFlag) elsewhere() string {
	if h.URL == defaultHub {
		return ""
	}
	return " --url " + h.URL
}

// tokenHint says how this program is given a token, where it has none.
func (h hubFlag) tokenHint() string {
	if h.Token != "" {
		return ""
	}
	return " (this program takes it from AGUIHUB_TOKEN)"
}

// endpoint builds a URL of the hub of path segments, which it escapes.
func (h hubFlag) endpoint(segments ...string) (*url.URL, error) {
	u, err := url.Parse(h.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, usagef("--url %q: an http:// or https:// URL is needed", h.URL)
	}
	escaped := make([]string, len(segments))
	for i, s := range segments {
		escaped[i] = url.PathEscape(s)
	}
	u.RawPath = strings.TrimRight(u.EscapedPath(), "/") + "/v1/" + strings.Join(escaped, "/")
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		return nil, usagef("--url %q: %w", h.URL, err)
	}
	return u, nil
}

// problem is what a hub answers where something is wrong (RFC 9457).
type problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

func (p *problem) Error() string {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if text == "" {
		text = http.StatusText(p.Status)
	}
	if p.Code == "token_missing" {
		text += hubFlag{}.tokenHint()
	}
	if p.Code != "" {
		return fmt.Sprintf("the hub answered %d %s: %s", p.Status, p.Code, text)
	}
	return fmt.Sprintf("the hub answered %d: %s", p.Status, text)
}

// problemOf reads an answer that isn't 2xx.
func problemOf(status int, body []byte) *problem {
	p := &problem{}
	if json.Unmarshal(body, p) != nil {
		p.Detail = strings.TrimSpace(string(body[:min(len(body), 200)]))
	}
	p.Status = status
	return p
}

// get asks the hub. A status other than 2xx is a *problem; else the caller closes the body.
func (h hubFlag) get(ctx context.Context, segments ...string) (*http.Response, error) {
	u, err := h.endpoint(segments...)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	h.show(req.Header)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, h.unreachable(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, h.unreachable(err)
	}
	return nil, problemOf(resp.StatusCode, body)
}

// getJSON gets an answer of the hub into v. A status other than 2xx is a *problem.
func (h hubFlag) getJSON(ctx context.Context, v any, segments ...string) error {
	resp, err := h.get(ctx, segments...)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return h.unreachable(err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s: is it a hub? its answer: %w", resp.Request.URL, err)
	}
	return nil
}

// getLines gets an answer of lines and calls yield with each, whose bytes are good until it returns. A status other than 2xx
// is a *problem.
func (h hubFlag) getLines(ctx context.Context, yield func(line []byte) error, segments ...string) error {
	resp, err := h.get(ctx, segments...)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		text, err := in.ReadBytes('\n')
		if text = bytes.TrimSpace(text); len(text) > 0 {
			if err := yield(text); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return h.unreachable(err)
		}
	}
}

// unreachable puts into words that nobody answers.
func (h hubFlag) unreachable(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no hub at %s: nothing listens there (start one with: aguihub)", h.URL)
	}
	return fmt.Errorf("hub at %s: %w", h.URL, err)
}

// checkRun refuses ids that no run can have before anybody is asked.
func checkRun(id string) error {
	if _, err := stream.ParseRunID(id); err != nil {
		return usagef("%w", err)
	}
	return nil
}
