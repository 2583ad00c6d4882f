package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/test/cluster"
)

// scriptDir has batch scripts as users of Slurm write them. The folder programs in it contains stubs of
// software that is not installed where the tests run: each stub prints its arguments.
const scriptDir = "../scripts"

// modules is the shell function module, as the environment of a login node has it. It chooses an MPI and
// sets what this test needs: its nodes are on one host without common shared memory.
const modules = `BASH_FUNC_module%%=() { echo "module $*"
 case "$*" in *mpich*) PATH=$HOME/mpich:$PATH ;; *openmpi*) PATH=$HOME/openmpi:$PATH ;; esac
 export OMPI_MCA_btl=self,tcp UCX_TLS=tcp,self
}`

// batchScript is one script: how it is submitted, and parts of what its files then contain.
type batchScript struct {
	options []string
	needs   string // a program, without which the test is skipped
	image   bool   // runs in an image
	lingers bool   // may not end once its files are complete (patient says why)
	files   map[string][]string
}

func batchScripts() map[string]batchScript {
	return map[string]batchScript{
		"single-gpu.sh":   {files: map[string][]string{"train-%d.out": {"module purge", "module load python/3.11 cuda/12.4", "with GPU 0", "python train.py --workers 8 with GPUs 0, threads 8"}}},
		"ddp-one-node.sh": {files: map[string][]string{"ddp-%d.out": {"torchrun on node 0 of 1: --standalone --nproc_per_node=4 train.py"}}},
		"ddp-many-nodes.sh": {files: map[string][]string{"logs/ddp-multi-%d.out": {
			"rendezvous on ", "torchrun on node 0 of 2: --nnodes 2", "torchrun on node 1 of 2: --nnodes 2", "--rdzv_endpoint ", ":29500 train.py",
		}}},
		"mpi-srun.sh":             {needs: "mpicc.mpich", lingers: true, files: map[string][]string{"solver-%d.out": sums}},
		"mpi-mpirun.sh":           {needs: "mpicc.openmpi", files: map[string][]string{"cfd-%d.out": sums, "cfd-%d.err": {"real"}}},
		"array-parameter-file.sh": {files: map[string][]string{"params_%d_4.out": {"task 4 of array %d (4 tasks): --size 4"}, "result-2.txt": {"simulated --size 2"}}},
		"sweep.sh":                {files: map[string][]string{"sweep/%d-5.out": {"python train.py --lr 0.001 --batch-size 64 --name sweep-%d-5 with GPUs 0"}}},
		"checkpoint-requeue.sh": {options: []string{"--time=1", "--signal=B:USR1@55"}, files: map[string][]string{
			"long-%d.out": {"run 0: starting", "signal: saving a checkpoint", "run 1: resuming", "python train.py --resume checkpoint"},
		}},
		"apptainer.sh":    {files: map[string][]string{"apptainer-%d.out": {"image pytorch.sif with binds ", ":/scratch", "python /project/train.py with GPUs 0"}}},
		"conda.sh":        {files: map[string][]string{"conda-%d.out": {"python train.py with GPUs 0, threads unset, environment research"}}},
		"jupyter.sh":      {files: map[string][]string{"jupyter-%d.log": {"On your workstation: ssh -N -L ", "/lab?token="}}},
		"tensorboard.sh":  {files: map[string][]string{"tensorboard-%d.log": {"TensorBoard of daemon on ", "at http://127.0.0.1:3"}}},
		"large-memory.sh": {files: map[string][]string{"assembly-%d.out": {"32 threads, 204800 MiB", "assembled --threads 32 reads.fa"}}},
		"staging.sh":      {files: map[string][]string{"results-%d/out/sorted.txt": {"1\n2\n3\n"}}},
		"packed-steps.sh": {files: map[string][]string{"packed-%d.out": {"all seeds done"}, "seed-6.out": {"python train.py --seed 6 with GPUs "}}},
		"pyxis.sh":        {image: true, options: []string{"--container-image=oci-archive:image.tar"}, files: map[string][]string{"container-%d.out": {"small test image", "experiment 7"}}},
	}
}

// TestBatchScripts submits the scripts of scriptDir unchanged under the name sbatch, with programs that
// stand for those that they call. The options of a script's own are for this test: a shorter time, and an
// image on disk.
func TestBatchScripts(t *testing.T) {
	t.Parallel()
	policy := quickKill()
	for _, name := range []string{"main", "gpu", "cpu"} {
		policy += fmt.Sprintf("[[partition]]\nname = %q\nnodes = [\"ALL\"]\ndefault = %t\n", name, name == "main")
	}
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: 4, CPUs: 64, Memory: "256GiB", Tmpfs: true, Policy: policy})
	needsRoot(t, "jobs of a user with a home")
	home := s.home()
	tested := []string{"dependency-chain.sh", "hetjob.sh"}
	for name, script := range batchScripts() {
		tested = append(tested, name)
		t.Run(name, func(t *testing.T) { runScript(s.with(t), home, name, script) })
	}
	t.Run("dependency-chain.sh", func(t *testing.T) { dependencyChain(s.with(t), home) })
	t.Run("hetjob.sh", func(t *testing.T) { hetJob(s.with(t), home) })
	all, err := filepath.Glob(filepath.Join(scriptDir, "*.sh"))
	s.must(err)
	for _, path := range all {
		if !slices.Contains(tested, filepath.Base(path)) {
			t.Errorf("no test runs %s", path)
		}
	}
	s.idle(limited(t, hang))
}

// home makes the home directory of alice: the scripts, their input, and the programs on the PATH.
func (s *site) home() string {
	s.t.Helper()
	s.programs()
	home := filepath.Join(s.Work, "home")
	s.must(os.CopyFS(home, os.DirFS(scriptDir)))
	s.must(os.Rename(filepath.Join(home, "programs"), filepath.Join(home, "bin")))
	source, err := os.ReadFile("../../internal/step/pmi/testdata/allreduce.c")
	s.must(err)
	s.must(os.Rename(filepath.Join(s.Work, "bin"), filepath.Join(home, "slurm"))) // where jobs see it: their /tmp is private
	path := fmt.Sprintf("PATH=%[1]s/bin:%[1]s/slurm:$PATH\n", home)
	for name, text := range map[string]string{
		"params.txt": "--size 1\n--size 2\n--size 3\n--size 4\n", "reads.fa": ">1\nACGT\n", "input/numbers.txt": "3\n1\n2\n", "logs/.keep": "", "sweep/.keep": "",
		"solver.c": string(source), "cfd.c": string(source), "venvs/torch/bin/activate": "", ".bash_profile": path,
	} {
		s.must(os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o755))
		s.must(os.WriteFile(filepath.Join(home, name), []byte(text), 0o644))
	}
	for _, name := range []string{"simulate", "assemble"} {
		s.must(os.Rename(filepath.Join(home, "bin", name), filepath.Join(home, name)))
	}
	for _, name := range []string{"sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct"} {
		s.must(os.Symlink("gslurm", filepath.Join(home, "slurm", name)))
	}
	s.must(os.Symlink("grun", filepath.Join(home, "slurm", "srun")))
	for _, kind := range []string{"mpich", "openmpi"} {
		s.must(os.MkdirAll(filepath.Join(home, kind), 0o755))
		for _, name := range []string{"mpicc", "mpirun"} {
			s.must(os.Symlink("/usr/bin/"+name+"."+kind, filepath.Join(home, kind, name)))
		}
	}
	s.must(filepath.WalkDir(home, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(alice), int(alice)))
	}))
	return home
}

// shell runs a command line as alice does in her home.
func (s *site) shell(home string, words ...string) cluster.Result {
	s.t.Helper()
	cmd := s.Command(s.t.Context(), "gslurm")
	path := fmt.Sprintf("%[1]s/bin:%[1]s/slurm:/usr/bin:/bin", home)
	cmd.Path, cmd.Args, cmd.Dir = "/usr/bin/env", append([]string{"env"}, words...), home
	cmd.Env = []string{modules, "PATH=" + path, "HOME=" + home, "USER=daemon", "LC_ALL=C", "EXPERIMENT=7", "GREYLAG_CONFIG=" + s.ConfigFile()}
	return s.finish(cluster.As(cmd, uint32(alice), uint32(alice)))
}

// runScript submits a script, waits for its end and checks its files.
func runScript(s *site, home, name string, script batchScript) {
	if script.needs != "" {
		if _, err := exec.LookPath(script.needs); err != nil {
			s.t.Skipf("%s is not installed", script.needs)
		}
	}
	if script.image {
		s.needsContainers("images")
		image, err := ociimage.Unix()
		s.must(err)
		_, err = ociimage.WriteFile(filepath.Join(home, "image.tar"), image)
		s.must(err)
		s.must(os.Chmod(filepath.Join(home, "image.tar"), 0o644))
	}
	words := slices.Concat([]string{"sbatch", "--wait"}, script.options, []string{name})
	if script.lingers {
		words = slices.Delete(words, 1, 2)
	}
	r := s.shell(home, words...)
	var id uint64
	if _, err := fmt.Sscanf(r.Stdout, "Submitted batch job %d\n", &id); err != nil || r.Exit != 0 {
		s.t.Fatalf("sbatch %s: status %d, %s%s", name, r.Exit, r.Stdout, r.Stderr)
	}
	if script.lingers {
		s.until("the files are complete", func() (bool, error) {
			err := script.missing(home, id)
			return err == nil, err
		})
		s.run(tester, "gcancel", fmt.Sprint(id)) // it may have ended
		s.await(limited(s.t, hang), id, "COMPLETED", "CANCELLED")
	}
	if err := script.missing(home, id); err != nil {
		s.t.Error(err)
	}
}

// missing returns an error for each part that is in no file of the script.
func (b batchScript) missing(home string, id uint64) (all error) {
	for file, parts := range b.files {
		path := strings.ReplaceAll(file, "%d", fmt.Sprint(id))
		text, err := os.ReadFile(filepath.Join(home, path))
		if err != nil {
			all = errors.Join(all, err)
		}
		for _, part := range parts {
			if part = strings.ReplaceAll(part, "%d", fmt.Sprint(id)); !strings.Contains(string(text), part) {
				all = errors.Join(all, fmt.Errorf("no %q in %s:\n%s", part, path, text))
			}
		}
	}
	return all
}

// dependencyChain runs the script that submits jobs that depend on each other.
func dependencyChain(s *site, home string) {
	r := s.shell(home, "bash", "dependency-chain.sh")
	if r.Exit != 0 || !regexp.MustCompile(`evaluate +PENDING +afterok:\d+`).MatchString(r.Stdout) {
		s.t.Errorf("status %d: %s%s", r.Exit, r.Stdout, r.Stderr)
	}
	if s.t.Failed() {
		return
	}
	s.until("the last job of the chain ended", func() (bool, error) {
		_, err := os.Stat(filepath.Join(home, "cleaned"))
		return err == nil, nil
	})
	score, err := os.ReadFile(filepath.Join(home, "score.txt"))
	s.must(err)
	s.equal("score", string(score), "3\n")
}

// hetJob checks what a heterogeneous job is answered: nothing on standard output, and what to change.
func hetJob(s *site, home string) {
	r := s.shell(home, "sbatch", "hetjob.sh")
	if r.Exit != 1 || r.Stdout != "" || !strings.Contains(r.Stderr, "heterogeneous") {
		s.t.Errorf("status %d: %s%s", r.Exit, r.Stdout, r.Stderr)
	}
	s.t.Log(r.Stderr)
}
