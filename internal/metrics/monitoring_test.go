package metrics_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/metrics/controllers"
	"github.com/greylag/greylag/internal/metrics/nodes"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/state"
)

const monitoring = "../../packaging/monitoring"

// known returns the labels of every metric of controllers and nodes by its name, with those that a
// scrape adds.
func known(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{"up": {"job", "instance", "cluster"}, "greylag_build_info": {"version", "job", "instance", "cluster"}}
	described := make(chan *prometheus.Desc, 1000)
	controllers.NewMember(func() raftlog.Status { return raftlog.Status{} }, nil, nil).Describe(described)
	controllers.NewCluster(func() *state.View { return nil }, true).Describe(described)
	controllers.NewProcess(metrics.NewRegistry()).Describe(described)
	nodes.New("dcgm", "jobstats").Describe(described)
	close(described)
	desc := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`)
	for d := range described {
		m := desc.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatal(d)
		}
		labels := append(strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' }), "instance", "cluster", "job")
		all[m[1]] = labels
		if strings.HasSuffix(m[1], "_seconds") || strings.HasSuffix(m[1], "_commands") {
			all[m[1]+"_bucket"], all[m[1]+"_sum"], all[m[1]+"_count"] = append(labels, "le"), labels, labels
		}
	}
	return all
}

type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	readYAML(t, monitoring+"/prometheus/greylag.rules.yaml", &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("%d rules", len(all))
	}
	return all
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text(t, path)), into); err != nil {
		t.Fatal(path, err)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var (
	selector = regexp.MustCompile(`\b((?:[a-z_]+:)?greylag[\w:]*|up)\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\b(?:by|on|group_left|group_right|ignoring|without) \(([\w, ]*)\)`)
	quoted   = regexp.MustCompile(`"[^"]*"`)
)

// faults returns the metrics and labels of an expression that do not exist.
func faults(expr string, metrics map[string][]string) (wrong []string) {
	labels := map[string]bool{}
	for _, list := range metrics {
		for _, l := range list {
			labels[l] = true
		}
	}
	plain := quoted.ReplaceAllString(expr, `""`)
	for _, m := range selector.FindAllStringSubmatch(plain, -1) {
		has, exists := metrics[m[1]]
		if !exists {
			wrong = append(wrong, m[1])
			continue
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(has, l[1]) {
				wrong = append(wrong, m[1]+" has no label "+l[1])
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(plain, -1) {
		for _, l := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' }) {
			if !labels[l] {
				wrong = append(wrong, "no metric has the label "+l)
			}
		}
	}
	if strings.Count(plain, "(") != strings.Count(plain, ")") {
		wrong = append(wrong, "parentheses")
	}
	return wrong
}

// withRecords adds the recorded metrics.
func withRecords(t *testing.T, metrics map[string][]string) map[string][]string {
	for _, r := range rules(t) {
		if r.Record != "" {
			metrics[r.Record] = []string{"cluster", "instance", "account", "objective", "cause"}
		}
	}
	return metrics
}

// TestRules: each expression names only metrics and labels that exist; each alert has a section in
// the runbook, a test in which it fires, and one in which it does not.
func TestRules(t *testing.T) {
	metrics, runbook := withRecords(t, known(t)), text(t, "../../docs/runbook.md")
	tests := text(t, monitoring+"/prometheus/greylag.tests.yaml") + text(t, monitoring+"/prometheus/greylag.days.tests.yaml")
	for _, r := range rules(t) {
		for _, fault := range faults(r.Expr, metrics) {
			t.Errorf("%s%s: %s", r.Record, r.Alert, fault)
		}
		if r.Alert == "" {
			continue
		}
		if !strings.Contains(runbook, "\n## "+r.Alert+"\n") || !strings.HasSuffix(r.Annotations["runbook_url"], "docs/runbook.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s: no section in docs/runbook.md, or the annotation runbook_url does not name it", r.Alert)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" || r.Annotations["summary"] == "" {
			t.Errorf("%s: severity %q, summary %q", r.Alert, s, r.Annotations["summary"])
		}
		for _, what := range []string{" fires\n", " is quiet\n"} {
			if !strings.Contains(tests, "- name: "+r.Alert+what) {
				t.Errorf("greylag.tests.yaml, greylag.days.tests.yaml: no test named %s%s", r.Alert, what)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^## (Greylag\w+)$`).FindAllStringSubmatch(runbook, -1) {
		if !slices.ContainsFunc(rules(t), func(r rule) bool { return r.Alert == m[1] }) {
			t.Errorf("docs/runbook.md: there is no alert %s", m[1])
		}
	}
}

// TestPromtool runs the tests of the rules.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool: ", err)
	}
	cmd := exec.Command(promtool, "test", "rules", "greylag.tests.yaml", "greylag.days.tests.yaml")
	cmd.Dir = monitoring + "/prometheus"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDashboards: each expression names only metrics and labels that exist, and each dashboard has
// the variables for data source and cluster.
func TestDashboards(t *testing.T) {
	metrics := withRecords(t, known(t))
	files, _ := filepath.Glob(monitoring + "/grafana/*.json")
	if len(files) != 5 {
		t.Fatal(files)
	}
	for _, path := range files {
		var dashboard struct {
			UID, Title string
			Templating struct {
				List []struct{ Name, Type string }
			}
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal([]byte(text(t, path)), &dashboard); err != nil {
			t.Fatal(path, err)
		}
		if v := dashboard.Templating.List; len(v) < 2 || v[0].Name != "datasource" || v[1].Name != "cluster" || len(dashboard.Panels) < 5 {
			t.Errorf("%s: variables %v, %d panels", path, v, len(dashboard.Panels))
		}
		for _, p := range dashboard.Panels {
			for _, target := range p.Targets {
				for _, fault := range append(faults(target.Expr, metrics), missingCluster(target.Expr)...) {
					t.Errorf("%s: %s: %s", path, p.Title, fault)
				}
			}
		}
	}
}

// missingCluster reports selectors that would show all clusters.
func missingCluster(expr string) (wrong []string) {
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		if !strings.Contains(m[2], `cluster="$cluster"`) {
			wrong = append(wrong, m[1]+" is not of the chosen cluster")
		}
	}
	return wrong
}

// TestMonitoringPage: docs/monitoring.md names every label of controllers, and only metrics that
// exist.
func TestMonitoringPage(t *testing.T) {
	page := text(t, "../../docs/monitoring.md")
	metrics := withRecords(t, known(t))
	for _, m := range regexp.MustCompile("`((?:greylag|nvidia_gpu|DCGM_FI)_[A-Za-z_]+)(\\*)?").FindAllStringSubmatch(page, -1) {
		exists := metrics[m[1]] != nil
		for name := range metrics {
			exists = exists || m[2] == "*" && strings.HasPrefix(name, m[1])
		}
		if !exists && !strings.HasPrefix(m[1], "greylag_jobs_") {
			t.Errorf("docs/monitoring.md: there is no metric %s%s", m[1], m[2])
		}
	}
}
