package e2e

import (
	"fmt"
	"os"
	"path/filepath"
)

// gate keeps jobs running until the test opens it, since the duration of a fault is unknown.
type gate struct {
	site *site
	path string
}

// gate returns a closed one with a name unique in the cluster.
func (s *site) gate(name string) gate { return gate{s, filepath.Join(s.Work, "gate-"+name)} }

// then returns a script body that continues when the gate is open.
func (g gate) then(body string) string {
	return fmt.Sprintf("until [ -e '%s' ]; do sleep 0.05; done; %s", g.path, body)
}

func (g gate) open() {
	g.site.t.Helper()
	g.site.must(os.WriteFile(g.path, nil, 0o644))
}
