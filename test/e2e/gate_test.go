package e2e

import (
	"fmt"
	"os"
	"path/filepath"
)

// gate keeps jobs running until the test opens it: how long a fault takes says nothing
// about how long a job must.
type gate struct {
	site *site
	path string
}

// gate is a closed one. The name is of one gate of the cluster.
func (s *site) gate(name string) gate { return gate{s, filepath.Join(s.Work, "gate-"+name)} }

// then is a script's body that goes on when the gate is open.
func (g gate) then(body string) string {
	return fmt.Sprintf("until [ -e '%s' ]; do sleep 0.05; done; %s", g.path, body)
}

func (g gate) open() {
	g.site.t.Helper()
	g.site.must(os.WriteFile(g.path, nil, 0o644))
}
