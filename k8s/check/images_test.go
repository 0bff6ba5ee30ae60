package check_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// The rule: the Dockerfile is one that BuildKit takes, and its image is of nothing but the binary, run by nobody.
func TestDockerfile(t *testing.T) {
	f, err := os.Open("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	parsed, err := parser.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	last := stages[len(stages)-1]
	if len(stages) != 2 || last.BaseName != "scratch" {
		t.Errorf("%d stages, the last from %s", len(stages), last.BaseName)
	}
	user := ""
	for _, c := range last.Commands {
		switch c := c.(type) {
		case *instructions.UserCommand:
			user = c.User
		case *instructions.RunCommand:
			t.Error("scratch has nothing that could run something")
		}
	}
	if !strings.HasPrefix(user, "65532") {
		t.Errorf("it runs as %q", user)
	}
}

// The rule: the compose file is valid, its hubs stop in the time that they need, and nothing is published beyond loopback.
func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"../../deploy/compose.yml"}, cli.WithName("aguihub"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"redis", "hub1", "hub2", "proxy", "prometheus", "grafana"} {
		s, err := project.GetService(name)
		if err != nil {
			t.Error(err)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q", name, p.Published, p.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == "bind" && err != nil {
				t.Errorf("%s mounts what isn't there: %v", name, err)
			}
		}
		if strings.HasPrefix(name, "hub") && (s.StopGracePeriod == nil || !s.ReadOnly) {
			t.Errorf("%s has no time to drain, or may write", name)
		}
	}
}

// The rule: the image's build works as it stands, and gives a static binary of the version that it was given.
func TestTheImagesBuild(t *testing.T) {
	out := buildHub(t, filepath.Join(t.TempDir(), "aguihub"))
	if text, err := exec.CommandContext(t.Context(), out, "version").CombinedOutput(); err != nil || !strings.Contains(string(text), "v1.2.3-test") {
		t.Errorf("version: %v: %s", err, text)
	}
	binary, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = binary.Close() }()
	if needs, _ := binary.ImportedLibraries(); len(needs) > 0 || binary.Section(".interp") != nil {
		t.Errorf("it isn't static: it needs %v", needs)
	}
}

// buildHub builds the hub as the Dockerfile says.
func buildHub(t *testing.T, out string) string {
	t.Helper()
	dockerfile, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	step := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*)$`).FindSubmatch(dockerfile)
	if step == nil {
		t.Fatal("the Dockerfile has no build")
	}
	build := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(string(step[1]), "/out/aguihub", out))
	build.Dir, build.Env = "../..", append(os.Environ(), "VERSION=v1.2.3-test")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", step[1], err, text)
	}
	return out
}
