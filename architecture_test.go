package aguihub_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/aguihub/aguihub"

// arrows is the picture of ARCHITECTURE.md: what the code of a folder may import of this module. A folder that isn't
// here may not be there.
var arrows = map[string][]string{
	"agui":         {},
	"audit":        {},
	"auth":         {},
	"agui/framing": {"agui"},
	"metrics":      {},

	"stream":            {"metrics"},
	"stream/streamtest": {"loadtest/process", "stream"},
	"publish":           {"agui", "metrics", "stream"},
	"bridge":            {"agui", "agui/framing", "metrics", "publish"},
	"demo":              {"metrics", "publish", "stream"},
	"hub":               {"metrics", "stream"},
	"backfill":          {"agui", "auth", "hub", "metrics", "stream"},

	"transport":         {"agui", "audit", "auth", "backfill", "hub", "metrics", "stream"},
	"transport/ws":      {"agui", "auth", "backfill", "hub", "metrics", "stream", "transport"},
	"transport/sse":     {"agui", "auth", "backfill", "hub", "metrics", "stream", "transport"},
	"transport/lookup":  {"agui", "auth", "backfill", "hub", "metrics", "stream", "transport"},
	"transport/ingest":  {"agui", "agui/framing", "auth", "metrics", "publish", "stream", "transport"},
	"transport/agents":  {"agui", "auth", "backfill", "bridge", "metrics", "publish", "stream", "transport"},
	"transport/cancel":  {"auth", "metrics", "stream", "transport"},
	"transport/erase":   {"auth", "backfill", "metrics", "stream", "transport"},
	"transport/console": {"transport"},
	"transport/tickets": {"stream", "transport"},

	"cmd/aguihub": {
		"agui", "audit", "auth", "backfill", "bridge", "demo", "hub", "metrics", "publish", "stream", "transport",
		"transport/agents", "transport/cancel", "transport/console", "transport/erase", "transport/ingest", "transport/lookup", "transport/sse", "transport/tickets", "transport/ws",
	},

	"loadtest":         {"loadtest/chaos", "loadtest/compare", "loadtest/load", "loadtest/process"},
	"loadtest/chaos":   {"loadtest/checker", "loadtest/process", "stream"},
	"loadtest/compare": {"loadtest/load"},
	"loadtest/load":    {"loadtest/checker", "loadtest/process", "stream"},
	"loadtest/process": {},
	"loadtest/checker": {"stream"},

	// For tests only: nothing above may import these, nor stream/streamtest.
	"oracle":                  {},
	"transport/transporttest": {"backfill", "stream", "transport"},
}

// keptIn says which folders alone may use a library, and the files that may, too.
var keptIn = map[string][]string{
	"github.com/golang-jwt/":     {"auth/"},
	"github.com/MicahParks/":     {"auth/"},
	"github.com/redis/":          {"stream/", "loadtest/chaos/", "loadtest/load/"},
	"github.com/alicebob/":       {"stream/"},
	"github.com/coder/websocket": {"cmd/aguihub/attach.go", "loadtest/checker/"},
	"github.com/klauspost/":      {"transport/ws/"},
	"github.com/gobwas/":         {"transport/ws/", "loadtest/load/"},
	"google.golang.org/protobuf": {"agui/framing/", "loadtest/load/"},
	"github.com/HdrHistogram/":   {"loadtest/load/"},
	"github.com/prometheus/":     {"metrics/"},
	"github.com/alecthomas/kong": {"cmd/aguihub/"},
	"testing":                    {"oracle/", "stream/streamtest/", "transport/transporttest/"},
}

func TestImportsFollowThePicture(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || (strings.HasPrefix(d.Name(), ".") && path != ".")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		path = filepath.ToSlash(path)
		folder := filepath.ToSlash(filepath.Dir(path))
		may, known := arrows[folder]
		if !known {
			t.Errorf("%s: the picture has no folder %s", path, folder)
			return nil
		}
		seen[folder] = true
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if inner, ours := strings.CutPrefix(name, module+"/"); ours && !slices.Contains(may, inner) {
				t.Errorf("%s imports %s: the picture has no such arrow", path, inner)
			}
			for library, places := range keptIn {
				in := func(place string) bool { return strings.HasPrefix(path, place) }
				if strings.HasPrefix(name, library) && !slices.ContainsFunc(places, in) {
					t.Errorf("%s imports %s, which only %s may", path, name, strings.Join(places, " and "))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder := range arrows {
		if !seen[folder] {
			t.Errorf("the picture has a folder %s, and there is none", folder)
		}
	}
}
