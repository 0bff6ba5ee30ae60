// Package check_test renders the chart and decodes what comes out strictly, against the types of Kubernetes and of those
// whose resources are used. It is a module of its own: the hub shall not depend on any of this. `go test .` here checks;
// `go test . -update` writes ../manifests anew.
package check_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write ../manifests anew")

const chartDir = "../chart"

// kinds are the types that what is rendered must decode into without a field left over. Those of KEDA and Google, whose
// modules would bring half of Kubernetes' server along, are below.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                      func() any { return &apps.Deployment{} },
	"v1 Service":                              func() any { return &core.Service{} },
	"networking.k8s.io/v1 Ingress":            func() any { return &networking.Ingress{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return &networking.NetworkPolicy{} },
	"policy/v1 PodDisruptionBudget":           func() any { return &policy.PodDisruptionBudget{} },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() any { return &autoscaling.HorizontalPodAutoscaler{} },
	"gateway.networking.k8s.io/v1 HTTPRoute":  func() any { return &gateway.HTTPRoute{} },
	"monitoring.coreos.com/v1 PodMonitor":     func() any { return &monitoring.PodMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return &monitoring.PrometheusRule{} },
	"keda.sh/v1alpha1 ScaledObject":           func() any { return &scaledObject{} },
	"networking.gke.io/v1 GCPBackendPolicy":   func() any { return &backendPolicy{} },
	"networking.gke.io/v1 HealthCheckPolicy":  func() any { return &healthCheckPolicy{} },
	"cloud.google.com/v1 BackendConfig":       func() any { return &backendConfig{} },
}

// deployment is one way to use the chart: the files and settings of values that make it.
type deployment struct {
	name, values string
	set          map[string]any
	kinds        []string // that it must have, beside those that all have
}

var deployments = []deployment{
	{name: "plain", set: map[string]any{"insecureNoAuth": true}},
	{name: "gke", values: "values-gke.yaml", kinds: []string{"HTTPRoute", "GCPBackendPolicy", "HealthCheckPolicy", "PodMonitor"}},
	{name: "alb", values: "values-alb.yaml", kinds: []string{"Ingress"}},
	{name: "nginx", values: "values-nginx.yaml", kinds: []string{"Ingress"}},
	{name: "gke-ingress", set: map[string]any{"gke": map[string]any{"enabled": true}, "ingress": map[string]any{"enabled": true, "hosts": []any{"h"}, "tlsSecret": "tls"}}, kinds: []string{"BackendConfig", "Ingress"}},
	{name: "adapter", set: everything("prometheus-adapter"), kinds: []string{"HorizontalPodAutoscaler", "PodMonitor", "PrometheusRule"}},
	{name: "keda", set: everything("keda"), kinds: []string{"ScaledObject", "PodMonitor", "PrometheusRule"}},
}

func everything(by string) map[string]any {
	return map[string]any{
		"autoscaling": map[string]any{"enabled": true, "by": by}, "podMonitor": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
		"prometheusRule": map[string]any{"enabled": true}, "env": map[string]any{"AGUIHUB_RETENTION": "48h"},
		"redis":        map[string]any{"url": "rediss://redis:6379", "credentialsSecret": "redis", "caSecret": "redis-ca"},
		"secretMounts": []any{map[string]any{"name": "tokens", "secret": "hub-tokens", "path": "/secrets/tokens"}},
		"allowHosts":   []any{"hub.example.com"}, "allowOrigins": []any{"https://app.example.com"}, "imagePullSecrets": []any{map[string]any{"name": "pull"}},
		"auth":         map[string]any{"issuer": "https://login.example.com", "jwks": "https://login.example.com/keys", "keySecret": "hub-key", "audience": "hub", "configSecret": "hub-auth", "cookie": "hub"},
		"limits":       map[string]any{"connections": 5000, "connectionsPerSubject": 20, "connectionsPerAddress": 100, "attachRate": 50, "messageRate": 20, "ingestEvents": 1000000, "ingestBytes": "4MiB"},
		"trustProxies": []any{"10.0.0.0/8", "fd00::/8"}, "auditLog": true, "maxConnectionAge": "12h", "agentsSecret": "agents", "insecureNoAuth": true,
		"tail": "wake", "podAnnotations": map[string]any{"a": "b"}, "nodeSelector": map[string]any{"pool": "hubs"},
		"tolerations": []any{map[string]any{"key": "hubs", "operator": "Exists"}},
	}
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// values are what a deployment sets, over its file.
func (d *deployment) all(t *testing.T) map[string]any {
	t.Helper()
	values := map[string]any{}
	if d.values != "" {
		v, err := chartutil.ReadValuesFile(filepath.Join(chartDir, d.values))
		if err != nil {
			t.Fatal(err)
		}
		values = v
	}
	maps.Copy(values, d.set)
	return values
}

// render returns the documents that a deployment is, in the order of the files.
func render(t *testing.T, d *deployment) []string {
	t.Helper()
	c := load(t)
	values, err := chartutil.ToRenderValues(c, d.all(t), chartutil.ReleaseOptions{Name: "aguihub", Namespace: "aguihub"}, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, values)
	if err != nil {
		t.Fatal(err)
	}
	var docs []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for doc := range strings.SplitSeq(files[name], "\n---\n") {
			if strings.TrimSpace(doc) != "" && strings.HasSuffix(name, ".yaml") {
				docs = append(docs, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(doc), "---"))+"\n")
			}
		}
	}
	return docs
}

// decode decodes a document strictly into the type of its kind.
func decode(doc string) (kind string, object any, err error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
		return "", nil, err
	}
	name := head.APIVersion + " " + head.Kind
	if kinds[name] == nil {
		return head.Kind, nil, fmt.Errorf("no type for %s", name)
	}
	object = kinds[name]()
	return head.Kind, object, yaml.UnmarshalStrict([]byte(doc), object)
}

// The rules: every way to use the chart renders, decodes strictly, and has what it is for; and what drains has the time.
func TestChart(t *testing.T) {
	for _, d := range deployments {
		t.Run(d.name, func(t *testing.T) {
			want := append([]string{"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}, d.kinds...)
			var got []string
			for _, doc := range render(t, &d) {
				kind, object, err := decode(doc)
				if err != nil {
					t.Errorf("%s: %v\n%s", kind, err, doc)
					continue
				}
				got = append(got, kind)
				if dep, ok := object.(*apps.Deployment); ok {
					hardened(t, dep)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("it has %v, want %v", got, want)
			}
		})
	}
}

// hardened checks a deployment against what it must be whatever the values.
func hardened(t *testing.T, d *apps.Deployment) {
	t.Helper()
	pod := d.Spec.Template.Spec
	hub := pod.Containers[0]
	env := map[string]string{}
	for _, e := range hub.Env {
		if _, twice := env[e.Name]; twice {
			t.Errorf("%s is set twice", e.Name)
		}
		env[e.Name] = e.Value
	}
	var drain int64
	if _, err := fmt.Sscanf(env["AGUIHUB_DRAIN_TIME"], "%ds", &drain); err != nil || drain == 0 {
		t.Errorf("drain time %q: %v", env["AGUIHUB_DRAIN_TIME"], err)
	}
	if needs := hub.Lifecycle.PreStop.Sleep.Seconds + drain + 5; *pod.TerminationGracePeriodSeconds < needs {
		t.Errorf("the grace period is %d s, and the drain needs %d", *pod.TerminationGracePeriodSeconds, needs)
	}
	c := hub.SecurityContext
	if !*c.ReadOnlyRootFilesystem || *c.AllowPrivilegeEscalation || !slices.Contains(c.Capabilities.Drop, "ALL") || !*pod.SecurityContext.RunAsNonRoot ||
		pod.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || *pod.AutomountServiceAccountToken {
		t.Error("the pod may more than it needs")
	}
	for name, p := range map[string]*core.Probe{"/readyz": hub.ReadinessProbe, "/livez": hub.LivenessProbe} {
		if p.HTTPGet.Path != name || p.HTTPGet.Port.StrVal != "metrics" {
			t.Errorf("a probe asks %s at %s", p.HTTPGet.Path, p.HTTPGet.Port.StrVal)
		}
	}
	if len(pod.TopologySpreadConstraints) != 2 || hub.Resources.Limits.Memory().IsZero() {
		t.Error("spread or limits are missing")
	}
	if d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Error("a hub may leave before the next one is ready")
	}
}

// envOf is what the container of a deployment is told.
func envOf(t *testing.T, d *deployment) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, doc := range render(t, d) {
		if _, object, err := decode(doc); err == nil {
			if dep, ok := object.(*apps.Deployment); ok {
				hardened(t, dep)
				for _, e := range dep.Spec.Template.Spec.Containers[0].Env {
					env[e.Name] = e.Value
				}
			}
		}
	}
	return env
}

// The rules: every flag of the hub can be set through the chart, once, whatever else is set; and what the chart sets are
// flags of the hub, with values that it takes.
func TestEveryFlagCanBeSet(t *testing.T) {
	hub := buildHub(t, filepath.Join(t.TempDir(), "aguihub"))
	help, err := exec.CommandContext(t.Context(), hub, "serve", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`\(\$(AGUIHUB_[A-Z_]+)\)`).FindAllStringSubmatch(string(help), -1)
	if len(flags) < 50 {
		t.Fatalf("only %d flags were found in the help", len(flags))
	}
	d := deployment{name: "all", set: everything("keda")}
	given := envOf(t, &d)
	env := map[string]any{}
	for _, f := range flags {
		env[f[1]] = "7s" // a drain needs a time
		delete(given, f[1])
	}
	d.set["env"] = env
	for name, value := range envOf(t, &d) {
		if _, flag := env[name]; flag && value != "7s" {
			t.Errorf("%s is %q although env says otherwise", name, value)
		}
		delete(env, name)
	}
	if delete(given, "GOMEMLIMIT"); len(given) > 0 || len(env) > 0 {
		t.Errorf("not flags of the hub: %v; not set: %v", given, env)
	}
	// What the values come to is taken by the hub, up to the files, which aren't here.
	for _, d := range deployments {
		cmd := exec.CommandContext(t.Context(), hub)
		for name, value := range envOf(t, &d) {
			if !strings.HasPrefix(value, "/secrets/") && name != "AGUIHUB_AUTH_ISSUER" && name != "AGUIHUB_INSECURE_NO_AUTH" && name != "AGUIHUB_AUTH_JWKS" && name != "AGUIHUB_AUTH_AUDIENCE" {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
		}
		cmd.Env = append(cmd.Env, "AGUIHUB_INSECURE_NO_AUTH=true", "AGUIHUB_METRICS_LISTEN=nowhere")
		if out, err := cmd.CombinedOutput(); err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "--metrics-listen") {
			t.Errorf("%s: the hub has more to say than that it can't listen nowhere: %v\n%s", d.name, err, out)
		}
	}
}

// The rule: helm's linter has nothing to say.
func TestLint(t *testing.T) {
	for _, d := range deployments {
		for _, m := range lint.All(chartDir, d.all(t), "aguihub", true).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", d.name, m.Error())
			}
		}
	}
}

// The rule: the manifests are what the chart renders, and its rules are those of deploy/prometheus.
func TestManifestsAreCurrent(t *testing.T) {
	for _, d := range deployments[:4] {
		text := "# Rendered from ../chart; `go test . -update` in ../check writes it anew.\n---\n" + strings.Join(render(t, &d), "---\n")
		path := filepath.Join("../manifests", d.name+".yaml")
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(path); err != nil || string(have) != text {
			t.Errorf("%s isn't what the chart renders (%v): go test . -update", path, err)
		}
	}
	for _, name := range []string{"rules.yml", "alerts.yml"} {
		there, err := os.ReadFile(filepath.Join("../../deploy/prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(chartDir, "files", name)
		if *update {
			if err := os.WriteFile(path, there, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, there) {
			t.Errorf("%s isn't deploy/prometheus/%s (%v): go test . -update", path, name, err)
		}
	}
}

// The rule: strict means strict. A field that no type has is found.
func TestAFieldThatIsMisspelledIsFound(t *testing.T) {
	for _, doc := range []string{
		"apiVersion: apps/v1\nkind: Deployment\nspec: {replica: 2}\n",
		"apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nspec: {minReplicas: 2}\n",
		"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nspec: {hosts: [a]}\n",
	} {
		if _, _, err := decode(doc); err == nil {
			t.Errorf("nothing was found in %s", doc)
		}
	}
}
