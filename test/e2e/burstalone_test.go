package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// spying is a program that tries to read what only the provider and the node may know, and then waits.
const spying = `#!/bin/sh
for file in /cloud/credentials /cloud/settings.json /cloud/instances/*/user-data.json /cloud/instances/*/identity /cloud/instances/*/machine/pki/identity.pem; do
	[ -e "$file" ] || echo "no $file" >>/work/read
	cat "$file" >/dev/null 2>&1 && echo "$file" >>/work/read
done
touch /work/tried
while [ ! -e /work/stop ]; do sleep 0.2; done
exit 9
`

// TestBurstNodeAlone: a job on a leased node cannot read the credentials of the provider, the join token and the key of the
// node. When no controller is left and the job has ended, the node powers itself off, and the controller learns of it.
func TestBurstNodeAlone(t *testing.T) {
	t.Parallel()
	needsRoot(t, "instances with namespaces of their own")
	ctx := limited(t, 6*hang)
	x := newScripted(t, cluster.Options{}, map[string]any{"node": `lease_idle_limit = "10s"`}, nil)
	x.must(os.Chmod(filepath.Dir(x.dir), 0o755))
	x.must(os.WriteFile(filepath.Join(x.dir, "credentials"), []byte("secret"), 0o600))
	script := filepath.Join(x.Work, "spying.sh")
	x.must(os.WriteFile(script, []byte(spying), 0o755))
	id := x.gsubmit(alice, "--burst=only", "--no-requeue", "--image=oci-archive:"+x.image(), "--mount="+x.Work+":/work", "--mount="+x.dir+":/cloud:ro",
		"--gpus=1", "--time=10", "--mem=64M", "--output=/dev/null", "--chdir="+x.Work, script)
	x.until("the job has tried", func() (bool, error) {
		job, err := x.get(ctx, id)
		return x.exists("tried"), fmt.Errorf("%v: %w", job, err)
	})
	if read := x.output("read"); read != "/cloud/settings.json\n" {
		t.Errorf("the job has read %q", read)
	}
	x.must(x.Controller(0).Kill())
	x.must(os.WriteFile(filepath.Join(x.Work, "stop"), nil, 0o644))
	x.until("the instance has ended", func() (bool, error) {
		file := filepath.Join(x.dir, "instances", x.instances()[0].ID, "alive") // is locked while it runs
		return exec.Command("flock", "--nonblock", file, "true").Run() == nil, nil
	})
	x.must(x.Controller(0).Start())
	x.ends(id, "NODE_FAIL")
	if all := x.ended(ctx); len(all) != 1 || all[0].Cost == 0 {
		t.Errorf("the leases: %v", all)
	}
	x.running(ctx, 0)
	x.audit(ctx)
}
