package gctld

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	commands "github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestMetricsLabels scrapes a controller without token and certificate: labels have values from
// closed sets, or names that administrators choose, as docs/admin.md says.
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
	allowed := map[string]bool{"version": true, "le": true, "quantile": true}
	page, err := os.ReadFile("../../docs/monitoring.md")
	must(t, err)
	_, list, _ := strings.Cut(string(page), "Labels of controllers are ")
	list, _, _ = strings.Cut(list, ".")
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(list, -1) {
		allowed[m[1]] = true
	}
	for line := range strings.Lines(text) {
		for _, m := range regexp.MustCompile(`[{,]([a-z_]+)="`).FindAllStringSubmatch(line, -1) {
			if !allowed[m[1]] {
				t.Errorf("label %s is not in docs/monitoring.md: %s", m[1], line)
			}
		}
	}
	if strings.Contains(text, "account=") {
		t.Error("accounts are shown, and metrics.accounts is false")
	}
}

// TestTargets lists a node for Prometheus with what it is.
func TestTargets(t *testing.T) {
	s := state.New()
	n := cluster.Node{Name: "n1", BootID: "b", CPUs: 2, Memory: cluster.GiB}
	for i, kind := range []string{"h100", "a100", "h100"} {
		n.GPUs = append(n.GPUs, cluster.GPU{Index: int32(i), UUID: kind, Type: kind, NUMA: -1, Domain: "n1/0"})
	}
	s.Apply(1, 1, &commands.RegisterNode{Node: n})
	got, err := json.Marshal(targets(s.View(), "9100"))
	must(t, err)
	const want = `[{"targets":["n1:9100"],"labels":{"__meta_greylag_domain":",n1/0,","__meta_greylag_gpu_type":",a100,h100,",` +
		`"__meta_greylag_leaf":"","__meta_greylag_node":"n1","__meta_greylag_partition":",main,","__meta_greylag_state":"IDLE"}}]`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestHealth(t *testing.T) {
	config, addr := layout(t)
	if code, _, err := command(t, "init", "--config", config); code != exitOK {
		t.Fatal(err)
	}
	r := start(t, config, addr)
	for path, want := range map[string]string{
		"/livez": "ok\n", "/readyz": "ok\n", "/readyz?verbose": "[+] leader\n[+] lag\n[+] disk\n[+] archive\nok\n", "/sd/nodes": "[]\n", "/sd/nodes?port=x": "[]\n",
	} {
		if body, status := r.get(path); status != http.StatusOK || body != want {
			t.Errorf("%s: %d %q, want %q", path, status, body, want)
		}
	}
}

// TestAliveWithoutALeader: a controller that waits to be added is alive, so that no supervisor restarts
// it, and not ready.
func TestAliveWithoutALeader(t *testing.T) {
	config, addr := layout(t)
	r := startUntil(t, config, addr, "/livez")
	if body, status := r.get("/readyz"); status != http.StatusServiceUnavailable || !strings.HasPrefix(body, "[-] leader: ") {
		t.Error(status, body)
	}
	if text, status := r.get("/metrics"); status != http.StatusOK || !strings.Contains(text, "\ngreylag_raft_has_leader 0\n") || strings.Contains(text, "\ngreylag_jobs") {
		t.Error(status, text)
	}
}
