// Command aguihub makes AG-UI runs durable and attachable over Redis streams.
//
// Without a subcommand it serves, with an embedded Redis, a demo agent and a page to look at. The others are tools
// for every day: publish, attach, cancel and check.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes of every subcommand.
const (
	exitOK    = 0
	exitFound = 1 // it didn't work, or something was found
	exitUsage = 2 // it was asked for wrongly

	exitInterrupted = 130 // a tool was ended by a signal before it was done, as shells say it
)

// exitError is an error that chooses the exit code. Its text may be empty: then all has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef is an error of whoever called.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// found says that the tool worked and what it looked at isn't well. All has been said.
func found() error { return &exitError{code: exitFound} }

// interrupted says that a signal ended a tool before it was done.
func interrupted() error { return &exitError{code: exitInterrupted} }

// commands are the subcommands and their flags.
type commands struct {
	Serve   serveCommand   `cmd:"" default:"withargs" help:"Run the hub. This is the default: aguihub alone starts it with an embedded Redis, a demo agent and a page to look at."`
	Publish publishCommand `cmd:"" help:"Publish events to a run through a hub, from standard input, one JSON object a line."`
	Attach  attachCommand  `cmd:"" help:"Attach to a run or a thread and print its events, one JSON object a line."`
	Cancel  cancelCommand  `cmd:"" help:"Ask a run to end. Whether and when it does is its agent's matter."`
	Check   checkCommand   `cmd:"" help:"Check a file of events, or a run, for what the official AG-UI client would reject, and how to mend it."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// stdio is where a tool reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	os.Exit(run(os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// run carries out a command line and returns the exit code.
func run(args []string, con stdio) int {
	ctx, stop := untilSignal()
	defer stop()

	exited := -1
	parser, err := kong.New(&commands{},
		kong.Name("aguihub"),
		kong.Description("Makes AG-UI runs durable and attachable: agents append events to Redis streams, and whoever attaches sees the whole conversation at once, then the live run.\n\nEvery flag can be set by the environment variable that stands behind it."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.DefaultEnvars("AGUIHUB"), kong.Writers(con.out, con.err),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(con),
	)
	if err != nil {
		panic(err) // a mistake in the struct tags
	}
	if len(args) > 0 && args[0] == "help" { // of whatever is named behind it
		named := slices.IndexFunc(args, func(a string) bool { return a != "help" })
		if named < 0 {
			named = len(args)
		}
		args = append(slices.Clone(args[named:]), "--help")
	}
	command, err := parser.Parse(args)
	if exited >= 0 {
		return exited // --help has been printed
	}
	if err != nil {
		_, _ = fmt.Fprintf(con.err, "aguihub: %v\nTry aguihub --help.\n", err)
		return exitUsage
	}
	return exitCode(command.Run(), con.err)
}

// untilSignal is a context that the first signal ends. A second one ends the process at once: it may come right behind
// the first, so that giving it its usual effect then would be too late.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	over := make(chan struct{})
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-over:
				return
			}
			if ctx.Err() != nil {
				os.Exit(exitInterrupted)
			}
			cancel()
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(over)
		cancel()
	})
}

func exitCode(err error, w io.Writer) int {
	if err == nil {
		return exitOK
	}
	code := exitFound
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
	}
	if text := err.Error(); text != "" {
		_, _ = fmt.Fprintf(w, "aguihub: %s\n", text)
	}
	return code
}

// versionCommand prints what was built.
type versionCommand struct{}

// Run implements the subcommand.
func (versionCommand) Run(con stdio) error {
	b := builtFrom()
	_, err := fmt.Fprintf(con.out, "aguihub %s (revision %s, %s, %s/%s)\n", b.Version, b.Revision, b.Go, runtime.GOOS, runtime.GOARCH)
	return err
}
