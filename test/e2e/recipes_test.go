package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// recipePage is the document whose scripts TestRecipes runs.
const recipePage = "../../docs/recipes.md"

// recipeScript matches a script of the page, and recipeProgram a program of one.
var (
	recipeScript  = regexp.MustCompile("(?ms)^```bash file=(\\S+)\n(.*?)^```$")
	recipeProgram = regexp.MustCompile("(?ms)^```python file=(\\S+)\n(.*?)^```$")
)

// trainProgram is train.py of the recipes: each process adds its rank to a sum over all.
const trainProgram = `import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(t)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {t.item():.0f}", flush=True)
dist.barrier()
`

// torchrun adds options without which torchrun of Debian 12 fails with its Python: it takes the number 0
// of an option for none.
const torchrun = "#!/bin/sh\nexec /usr/bin/torchrun --redirects=1 --tee=1 \"$@\"\n"

// solverModule and solverProgram are what the recipe of modules loads.
const (
	solverModule  = "#%Module\nprepend-path PATH [file dirname [file dirname [file dirname $ModulesCurrentModulefile]]]/solver\n"
	solverProgram = "#!/bin/sh\necho \"solved $2\"\n"
)

// recipe is how one script is tested.
type recipe struct {
	needs  []string                     // programs, paths or modules of Python ("import NAME"); the test is skipped without them
	output string                       // file, with %d for the job
	want   []string                     // parts of the output
	serve  func(s *site, output string) // uses the server that it starts
	// lingers is set if the script may not end once it has printed its results (patient says why).
	lingers bool
	// requeueAt is a part of the output at which the job is requeued once.
	requeueAt string
}

func recipes() map[string]recipe {
	torch := []string{"torchrun", "/usr/lib/python3/dist-packages/torch"}
	return map[string]recipe{
		"modules.sh":         {needs: []string{"/etc/profile.d/modules.sh"}, output: "modules-%d.out", want: []string{"solver/2.1", "solved case.txt"}},
		"conda.sh":           {needs: []string{"conda"}},
		"apptainer.sh":       {needs: []string{"apptainer"}},
		"notebook.sh":        {needs: []string{"jupyter-server"}, output: "token-%d.log", serve: notebookWithToken},
		"notebook-socket.sh": {needs: []string{"jupyter-server"}, output: "notebook-%d.log", serve: notebookOnSocket},
		"torchrun.sh":        {needs: torch, output: "ddp-%d.out", want: sums},
		"ranks.sh":           {needs: torch, output: "ranks-%d.out", want: sums},
		"lightning.sh":       {needs: []string{"/usr/lib/python3/dist-packages/lightning"}},
		"deepspeed.sh":       {needs: []string{"deepspeed"}},
		"ray.sh":             {needs: []string{"ray"}},
		"save.sh":            {needs: []string{"python3"}, output: "save-%d.out", requeueAt: "saved step 40", want: []string{"attempt 1 continues at step 0\n", "attempt 2 continues at step ", "total 5050\n"}},
		"dcp.sh": {needs: []string{"python3", "import torch.distributed.checkpoint.state_dict"}, output: "dcp-%d.out", requeueAt: "saved step 20",
			want: []string{"attempt 1 continues at step 0\n", "attempt 2 continues at step ", "loss "}},
		"mpich.sh":   {needs: []string{"mpicc.mpich"}, output: "mpich-%d.out", want: sums, lingers: true},
		"openmpi.sh": {needs: []string{"mpicc.openmpi", "ssh"}, output: "openmpi-%d.out", want: sums},
	}
}

// TestRecipes runs the scripts of recipePage as they are there, with the programs of this machine.
func TestRecipes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(recipePage)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: 2, CPUs: 32, Memory: "64GiB", Tmpfs: true, Policy: quickKill()})
	needsRoot(t, "jobs of a user with a home")
	home := s.home()
	for name, text := range map[string]string{
		"train.py": trainProgram, "modulefiles/solver/2.1": solverModule, "solver/solver": solverProgram, "bin/torchrun": torchrun,
	} {
		path := filepath.Join(home, name)
		s.must(os.MkdirAll(filepath.Dir(path), 0o755))
		s.must(os.WriteFile(path, []byte(text), 0o755))
	}
	module, err := os.ReadFile("../../python/greylag_checkpoint.py")
	s.must(err)
	s.must(os.WriteFile(filepath.Join(home, "greylag_checkpoint.py"), module, 0o644))
	for _, m := range recipeProgram.FindAllStringSubmatch(string(text), -1) {
		s.must(os.WriteFile(filepath.Join(home, m[1]), []byte(m[2]), 0o644))
	}
	for _, name := range []string{"python", "apptainer", "conda", "jupyter"} { // the page needs the real ones
		s.must(os.Remove(filepath.Join(home, "bin", name)))
	}
	all := recipes()
	for _, m := range recipeScript.FindAllStringSubmatch(string(text), -1) {
		known, ok := all[m[1]]
		if !ok {
			t.Errorf("no test runs %s", m[1])
			continue
		}
		delete(all, m[1])
		s.must(os.WriteFile(filepath.Join(home, m[1]), []byte(m[2]), 0o755))
		t.Run(m[1], func(t *testing.T) { runRecipe(s.with(t), home, m[1], known) })
	}
	if len(all) > 0 {
		t.Errorf("the page has no longer %v", all)
	}
	s.idle(limited(t, hang))
}

// runRecipe submits a script, and checks its output or uses the server that it starts.
func runRecipe(s *site, home, name string, r recipe) {
	for _, program := range r.needs {
		_, err := exec.LookPath(program)
		switch {
		case strings.HasPrefix(program, "/"):
			_, err = os.Stat(program)
		case strings.HasPrefix(program, "import "):
			err = exec.Command("/usr/bin/python3", "-c", program).Run()
		}
		if err != nil {
			s.t.Skipf("%s is not installed", program)
		}
	}
	var id uint64
	result := s.shell(home, "gsubmit", "--parsable", name)
	if _, err := fmt.Sscan(result.Stdout, &id); err != nil {
		s.t.Fatalf("gsubmit %s: %s%s", name, result.Stdout, result.Stderr)
	}
	output := filepath.Join(home, fmt.Sprintf(r.output, id))
	if r.serve != nil {
		r.serve(s, output)
		s.ok(tester, "gcancel", fmt.Sprint(id))
		s.ends(id, "CANCELLED")
		return
	}
	if r.requeueAt != "" {
		s.until("the script prints "+r.requeueAt, func() (bool, error) {
			text, err := os.ReadFile(output)
			return err == nil && strings.Contains(string(text), r.requeueAt), nil
		})
		s.ok(tester, "gctl", "requeue", fmt.Sprint(id))
	}
	if r.lingers {
		s.until("the script has printed its results", func() (bool, error) {
			text, err := os.ReadFile(output)
			missing := slices.ContainsFunc(r.want, func(part string) bool { return !strings.Contains(string(text), part) })
			return err == nil && !missing, nil
		})
		s.run(tester, "gcancel", fmt.Sprint(id)) // it may have ended
	}
	s.await(limited(s.t, hang), id, "COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED")
	text, err := os.ReadFile(output)
	s.must(err)
	for _, part := range r.want {
		if !strings.Contains(string(text), part) {
			s.t.Errorf("no %q in the output:\n%s", part, text)
		}
	}
}

// printed waits until the output has a line, and returns its parts.
func (s *site) printed(output string, line *regexp.Regexp) (parts []string) {
	s.t.Helper()
	s.until("the server is up", func() (bool, error) {
		text, err := os.ReadFile(output)
		if err != nil && !os.IsNotExist(err) {
			return false, err
		}
		parts = line.FindStringSubmatch(string(text))
		return parts != nil, fmt.Errorf("no line %v in %s", line, text)
	})
	return parts
}

// fetch returns the status of a request to a server.
func (s *site) fetch(client *http.Client, url string) int {
	s.t.Helper()
	r, err := client.Get(url)
	s.must(err)
	defer r.Body.Close()
	return r.StatusCode
}

// notebookWithToken checks that the server asks for the token, which only its user can read.
func notebookWithToken(s *site, output string) {
	address := s.printed(output, regexp.MustCompile(`http://127\.0\.0\.1:(\d+)/\S*\?token=(\w+)`))
	url := fmt.Sprintf("http://127.0.0.1:%s/api/contents", address[1])
	if got := s.fetch(http.DefaultClient, url); got != http.StatusForbidden {
		s.t.Errorf("without the token: status %d", got)
	}
	if got := s.fetch(http.DefaultClient, url+"?token="+address[2]); got != http.StatusOK {
		s.t.Errorf("with the token: status %d", got)
	}
	if info, err := os.Stat(output); err != nil || info.Mode().Perm()&0o077 != 0 {
		s.t.Errorf("others can read the token: %v, %v", info.Mode(), err)
	}
}

// notebookOnSocket checks that the server answers on its socket, which only its user reaches.
func notebookOnSocket(s *site, output string) {
	path := s.printed(output, regexp.MustCompile(`(?s)^socket (\S+) on node .*http\+unix://\S+\?token=(\w+)`))
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path[1])
	}}}
	if got := s.fetch(client, "http://localhost/api/contents?token="+path[2]); got != http.StatusOK {
		s.t.Errorf("on the socket: status %d", got)
	}
	cmd := cluster.As(exec.Command("cat", path[1]), uint32(bob), uint32(bob))
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
		s.t.Errorf("another user: %v, %s", err, out)
	}
}
