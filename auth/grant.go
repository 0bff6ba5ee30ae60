package auth

import (
	"slices"
	"strings"
	"time"
)

// Scope is a kind of action that a token may allow.
type Scope string

// The scopes: docs/security.md.
const (
	Attach  Scope = "attach"  // follow runs and threads
	Publish Scope = "publish" // write events, call agents
	Cancel  Scope = "cancel"  // ask runs to end
	Read    Scope = "read"    // look runs and threads up
	Input   Scope = "input"   // see what runs started from, and system and developer messages
	Admin   Scope = "admin"   // delete
)

// Rights are the runs and threads that a token names, by id and by what ids begin with. An empty prefix names all.
type Rights struct {
	Runs           []string `json:"runs,omitempty"`
	RunPrefixes    []string `json:"runPrefixes,omitempty"`
	Threads        []string `json:"threads,omitempty"`
	ThreadPrefixes []string `json:"threadPrefixes,omitempty"`
	Scopes         []Scope  `json:"scopes,omitempty"`
}

// Grant is what somebody may do. It is immutable; its methods may be called by anyone at once.
type Grant struct {
	// Subject is who it is, for people and for limits.
	Subject string `json:"subject"`
	// Tenant is whose keys there are; "" where there is one tenant only. The issuer decides it.
	Tenant string `json:"tenant,omitempty"`
	// Expires is when it ends; zero where it doesn't.
	Expires time.Time `json:"expires"`
	Rights  Rights    `json:"rights"`
	// OnlyRun and OnlyThread are what a ticket is for; "" where the grant is for all that it names.
	OnlyRun    string `json:"onlyRun,omitempty"`
	OnlyThread string `json:"onlyThread,omitempty"`

	open bool // nobody is asked
}

var everything = Grant{Subject: "anonymous", open: true}

// Everything is the grant where nobody is asked who they are. All have the same one.
func Everything() *Grant { return &everything }

// Open says that nobody is asked: then what is published is shown as it was published.
func (g *Grant) Open() bool { return g.open }

// May says whether the grant has a scope.
func (g *Grant) May(s Scope) bool { return g.open || slices.Contains(g.Rights.Scopes, s) }

// NamesRun says whether the grant names a run.
func (g *Grant) NamesRun(id string) bool {
	return g.open || names(g.Rights.Runs, g.Rights.RunPrefixes, id)
}

// NamesThread says whether the grant names a thread. The empty id, of a run without one, is named by nobody.
func (g *Grant) NamesThread(id string) bool {
	return g.open || id != "" && names(g.Rights.Threads, g.Rights.ThreadPrefixes, id)
}

// NamesThreads says whether the grant names any thread: then a run that it doesn't name may be of one of them.
func (g *Grant) NamesThreads() bool {
	return g.open || len(g.Rights.Threads)+len(g.Rights.ThreadPrefixes) > 0
}

// Sees says whether the grant reaches a run of a thread: it names one of the two.
func (g *Grant) Sees(run, thread string) bool { return g.NamesRun(run) || g.NamesThread(thread) }

// Covers says whether the grant is as good as another for a connection that goes on with it: of the same subject and
// tenant, with all of its scopes, and naming all that it names.
func (g *Grant) Covers(other *Grant) bool {
	if g.open || other.open {
		return g.open
	}
	for _, s := range other.Rights.Scopes {
		if !g.May(s) {
			return false
		}
	}
	return g.Subject == other.Subject && g.Tenant == other.Tenant &&
		coversNames(g.Rights.Runs, g.Rights.RunPrefixes, other.Rights.Runs, other.Rights.RunPrefixes) &&
		coversNames(g.Rights.Threads, g.Rights.ThreadPrefixes, other.Rights.Threads, other.Rights.ThreadPrefixes)
}

// Only binds the grant to one run or one thread, for a ticket. It names no more than it did.
func (g *Grant) Only(run, thread string) *Grant {
	bound := *g
	bound.OnlyRun, bound.OnlyThread = run, thread
	return &bound
}

// IsFor says whether the grant is for an action on a run or a thread: always, but for what a ticket brings.
func (g *Grant) IsFor(run, thread string) bool {
	return g.OnlyRun == "" && g.OnlyThread == "" || run == g.OnlyRun && thread == g.OnlyThread
}

func names(exact, prefixes []string, id string) bool {
	return slices.Contains(exact, id) || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(id, p) })
}

func coversNames(exact, prefixes, otherExact, otherPrefixes []string) bool {
	for _, id := range otherExact {
		if !names(exact, prefixes, id) {
			return false
		}
	}
	for _, p := range otherPrefixes {
		if !slices.ContainsFunc(prefixes, func(mine string) bool { return strings.HasPrefix(p, mine) }) {
			return false
		}
	}
	return true
}
