package gctld

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/version"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestMetricsLabels scrapes a controller without token and certificate: label values are states and
// the version, so that no name of a user, job or node is among them, as docs/admin.md says.
func TestMetricsLabels(t *testing.T) {
	config, addr := layout(t)
	if code, _, err := command(t, "init", "--config", config); code != exitOK {
		t.Fatal(err)
	}
	r := start(t, config, addr)
	text, status := r.get("/metrics")
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	allowed := map[string]bool{`version="` + version.Version + `"`: true}
	for s := cluster.Pending; s <= cluster.Completing; s++ {
		allowed[`state="`+s.String()+`"`] = true
	}
	for s := cluster.NodeIdle; s <= cluster.NodeDown; s++ {
		allowed[`state="`+s.String()+`"`] = true
	}
	sample := regexp.MustCompile(`^(greylag_[a-z_]+)(?:\{([^{},]+)\})? [0-9.e+-]+$`)
	typed, labels := "", map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			typed, _, _ = strings.Cut(rest, " ")
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil || m[1] != typed || m[2] != "" && !allowed[m[2]] {
			t.Errorf("metric %q, in the section of %s", line, typed)
			continue
		}
		labels[m[2]] = true
	}
	page, err := os.ReadFile("../../docs/admin.md")
	if must(t, err); !strings.Contains(string(page), "Their labels are `state` and `version`,") {
		t.Error("docs/admin.md names other labels")
	}
	if !labels[""] || len(labels) != 1+len(allowed) {
		t.Errorf("labels are %v, want those of %v", labels, allowed)
	}
}
