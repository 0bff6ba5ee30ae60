package aguihub_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocsNameWhatThereIs finds error codes and flags that the documents lack.
func TestDocsNameWhatThereIs(t *testing.T) {
	for _, c := range []struct {
		what, doc, under string
		pattern          *regexp.Regexp
		written          func(found string) string // as the document has it
	}{
		{
			"error code", "docs/errors.md", "transport", regexp.MustCompile(`(?:Code: +|BadRequest\(|"code":)"([a-z_]+)"`),
			func(code string) string { return "`" + code + "`" },
		},
		{
			"reason", "docs/errors.md", "agui/admission.go", regexp.MustCompile(`Reason = "([a-z_0-9]+)"`),
			func(reason string) string { return "`" + reason + "`" },
		},
		{
			"metric", "docs/metrics.md", "metrics", regexp.MustCompile(`= desc\("([a-z_]+)"`),
			func(name string) string { return "`aguihub_" + name + "`" },
		},
		{"flag", "docs/cli.md", "cmd/aguihub", regexp.MustCompile(`(?m)^\t([A-Z]\w+) +\S+ +` + "`[^`]*help:"), flagOf},
	} {
		doc, err := os.ReadFile(c.doc)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		err = filepath.WalkDir(c.under, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range c.pattern.FindAllStringSubmatch(string(source), -1) {
				if strings.Contains(m[0], "cmd:") || strings.Contains(m[0], "arg:") {
					continue
				}
				found++
				if want := c.written(m[1]); !strings.Contains(string(doc), want) {
					t.Errorf("%s: %s %s isn't in %s", path, c.what, want, c.doc)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if found == 0 {
			t.Errorf("no %s found in %s", c.what, c.under)
		}
	}
}

// flagOf is the flag of a struct's field.
func flagOf(field string) string {
	field = strings.Replace(field, "TLS", "Tls", 1)
	name := strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(field, "$1-$2"))
	if name == "demo" || name == "console" {
		return "--[no-]" + name
	}
	return "--" + name
}
