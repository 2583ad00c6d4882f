package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/cli/gslurm"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
)

// slurmTools runs the command lines of tools against the cluster of testdata/slurm. The parsers in this
// file read the answers as the tools do; they are our own.
type slurmTools struct {
	t   *testing.T
	env []string
}

func newSlurmTools(t *testing.T) *slurmTools {
	t.Helper()
	dir := t.TempDir()
	w, err := serve(t, dir)
	if err == nil {
		err = loadSlurm(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GREYLAG_CONFIG", filepath.Join(dir, "client.toml"))
	return &slurmTools{t: t}
}

// run runs a command line.
func (s *slurmTools) run(stdin string, words ...string) (stdout, stderr string, status int) {
	var out, errors bytes.Buffer
	p := &ui.Process{
		Program: words[0], Args: words[1:], Environ: s.env, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errors,
		Now: func() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }, Dial: dial,
	}
	status = gslurm.Run(context.Background(), p)
	return out.String(), errors.String(), status
}

// ok runs a command line that succeeds and prints nothing on standard error.
func (s *slurmTools) ok(words ...string) string {
	s.t.Helper()
	out, errors, status := s.run("", words...)
	if status != 0 || errors != "" {
		s.t.Errorf("%q: status %d, %s", words, status, errors)
	}
	return out
}

// lines returns the lines of an answer, each split.
func lines(text, separator string) (rows [][]string) {
	for line := range strings.Lines(text) {
		if separator == "" {
			rows = append(rows, strings.Fields(line))
		} else {
			rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), separator))
		}
	}
	return rows
}

func (s *slurmTools) want(what string, got, want any) {
	s.t.Helper()
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if !bytes.Equal(g, w) {
		s.t.Errorf("%s: %s, want %s", what, g, w)
	}
}

// elementIDs returns the IDs that one of sacct stands for: 12, 12_3, 12_[0-3,7%2].
func elementIDs(id string) (ids []string) {
	array, list, several := strings.Cut(id, "_[")
	if !several {
		return []string{id}
	}
	list, _, _ = strings.Cut(strings.TrimSuffix(list, "]"), "%")
	for part := range strings.SplitSeq(list, ",") {
		low, high, ranged := strings.Cut(part, "-")
		from, _ := strconv.Atoi(low)
		to := from
		if ranged {
			to, _ = strconv.Atoi(high)
		}
		for n := from; n <= to; n++ {
			ids = append(ids, array+"_"+strconv.Itoa(n))
		}
	}
	return ids
}

func TestSubmititReadsStatesOfArraysFromSacct(t *testing.T) {
	s := newSlurmTools(t)
	rows := lines(s.ok("sacct", "-o", "JobID,State,NodeList", "--parsable2", "-j", "110", "-j", "121"), "|")
	s.want("header", rows[0], []string{"JobID", "State", "NodeList"})
	states := map[string]string{}
	for _, row := range rows[1:] {
		if !strings.Contains(row[0], ".") {
			for _, id := range elementIDs(row[0]) {
				states[id] = strings.Fields(row[1])[0]
			}
		}
	}
	s.want("states", states, map[string]string{"110_0": "RUNNING", "110_1": "PENDING", "110_2": "PENDING", "110_3": "PENDING", "110_7": "PENDING", "121": "CANCELLED"})
	out, _, _ := s.run("", "sbatch", "--wrap", "true")
	s.want("id", regexp.MustCompile(`job (\d+)`).FindStringSubmatch(out)[1], "101")
}

func TestSnakemakePluginFindsItsJobsByName(t *testing.T) {
	s := newSlurmTools(t)
	out := s.ok("sacct", "-X", "--parsable2", "--clusters", "all", "--noheader", "--format=JobIdRaw,State", "--starttime", "2026-11-20T12:00", "--endtime", "now", "--name", "broken")
	s.want("sacct", lines(out, "|"), [][]string{{"122", "FAILED"}})
	out = s.ok("squeue", "--format=%i|%T", "--states=all", "--noheader", "--name", "done")
	s.want("squeue", lines(out, "|"), [][]string{{"120", "COMPLETED"}})
	s.want("node list", strings.TrimSpace(s.ok("sacct", "-j", "100", "-n", "-X", "-o", "nodelist%-256")), "n[01-02]")
	s.want("steps", s.ok("sacct", "-j", "100.3", "--format=Reason", "--noheader"), "")
	age := regexp.MustCompile(`MinJobAge\s*=\s*(\d+)\s*sec`).FindStringSubmatch(s.ok("scontrol", "show", "config"))
	if n, err := strconv.Atoi(age[1]); err != nil || n < 120 {
		t.Errorf("MinJobAge %q: too short for squeue", age[1])
	}
	s.want("partitions", lines(s.ok("sinfo", "-o", "%P"), ""), [][]string{{"PARTITION"}, {"gpu*"}, {"main"}})
	gpus := regexp.MustCompile(`gres/gpu=(\d+)`).FindStringSubmatch(s.ok("scontrol", "show", "partition", "gpu"))
	s.want("GPUs", gpus[1], "8")
	accounts := []string{}
	for _, row := range lines(s.ok("sacctmgr", "-n", "-s", "list", "user", "alice", "format=account%256"), "") {
		accounts = append(accounts, row...)
	}
	s.want("accounts", accounts, []string{"ml", "bio"})
}

func TestSnakemake7TakesTheLastWordOfBothStreams(t *testing.T) {
	s := newSlurmTools(t)
	out, errors, _ := s.run("", "sbatch", "-J", "rule", "-o", "../%j.log", "--export=ALL", "-A", "ml", "-p", "gpu", "-t", "10", "--comment", "x", "--cpus-per-task=2", "-D", "/", "--wrap=true")
	words := strings.Fields(errors + out)
	s.want("id", words[len(words)-1], "101")
	s.want("state", lines(s.ok("sacct", "-P", "-n", "--format=JobIdRaw,State", "-j", "120"), "|")[0], []string{"120", "COMPLETED"})
	state := regexp.MustCompile(`JobState=(\w+)`).FindStringSubmatch(s.ok("scontrol", "show", "jobid", "-dd", "120"))
	s.want("scontrol", state[1], "COMPLETED")
}

func TestNextflowReadsTwoWordsALine(t *testing.T) {
	s := newSlurmTools(t)
	out, errors, status := s.run("", "squeue", "--noheader", "-o", "%i %t", "-t", "all", "-u", "alice")
	known := []string{"PD", "R", "CA", "CF", "CG", "CD", "F", "TO", "NF", "S", "ST", "PR", "BF"}
	for _, row := range lines(out+errors, "") {
		if len(row) != 2 || !slices.Contains(known, row[1]) || status != 0 {
			t.Errorf("line %q", row)
		}
	}
	out, _, status = s.run("#!/bin/bash\n#SBATCH -J nf-1\n#SBATCH -o .command.log\n#SBATCH --no-requeue\n#SBATCH --signal B:USR2@30\n#SBATCH -c 2\n#SBATCH -t 01:00:00\n#SBATCH --mem 1024M\n#SBATCH -p gpu\n#SBATCH --array 0-3\ntrue\n", "sbatch")
	if !regexp.MustCompile(`Submitted batch job (\d+)`).MatchString(out) || status != 0 {
		t.Errorf("%d: %s", status, out)
	}
}

func TestParslPollsSacctElseSqueue(t *testing.T) {
	s := newSlurmTools(t)
	s.ok("sacct", "-X")
	got := map[string]string{}
	for _, row := range lines(s.ok("sacct", "-X", "--noheader", "--format=jobid,state%20", "--job", "100,102,121"), "") {
		got[row[0]] = row[1]
	}
	s.want("sacct", got, map[string]string{"100": "RUNNING", "102": "PENDING", "121": "CANCELLED"})
	s.want("squeue", lines(s.ok("squeue", "--noheader", "--format=%i %t", "--job", "100,102"), ""), [][]string{{"100", "R"}, {"102", "PD"}})
	out, _, _ := s.run("", "sbatch", "--wrap", "true")
	if !regexp.MustCompile(`^Submitted batch job (\S*)`).MatchString(out) {
		t.Error(out)
	}
}

func TestReframeReadsEpochsNodesAndReasons(t *testing.T) {
	s := newSlurmTools(t)
	s.env = []string{"SLURM_TIME_FORMAT=%s"}
	out := s.ok("sacct", "-S", "2026-11-20", "-P", "-j", "120,122", "-o", "jobid,state,exitcode,end,nodelist")
	row := regexp.MustCompile(`(?m)^(\d+)\|([A-Z_]+)\|(\d+):(\d+)\|(\d+|Unknown)\|(.*)$`)
	s.want("sacct", row.FindAllStringSubmatch(out, -1)[1][1:], []string{"122", "FAILED", "3", "0", "1795262220", "n03"})
	s.want("squeue", lines(s.ok("squeue", "-h", "-j", "102,140", "-o", "%A|%r"), "|"), [][]string{{"140", "Dependency"}, {"102", "Resources"}})
	s.want("quoted", lines(s.ok("squeue", "-h", "-j", "100,100", "-o", "%%i|%%T|%%N|%%r"), "|"), [][]string{{"100", "RUNNING", "n[01-02]", "None"}})
	node := s.ok("scontrol", "-a", "show", "-o", "nodes", "n04")
	s.want("state", regexp.MustCompile(`State=(\S+)`).FindStringSubmatch(node)[1], "MIXED+DRAIN")
	s.want("name", regexp.MustCompile(`NodeName=(\S+)`).FindStringSubmatch(node)[1], "n04")
	parts := s.ok("scontrol", "-a", "show", "-o", "partitions")
	s.want("default", regexp.MustCompile(`PartitionName=(\S+)[^\n]* Default=YES`).FindStringSubmatch(parts)[1], "gpu")
}

func TestBatchspawnerReadsStateAndHost(t *testing.T) {
	s := newSlurmTools(t)
	s.want("running", strings.Fields(s.ok("squeue", "-h", "-j", "100", "-o", "%T %B")), []string{"RUNNING", "n01"})
	s.want("pending", strings.Fields(s.ok("squeue", "-h", "-j", "102", "-o", "%T %B")), []string{"PENDING", "n/a"})
	s.env = []string{"SHELL=/bin/sh", "JUPYTERHUB_API_TOKEN=secret"}
	out, errors, status := s.run("#!/bin/bash\n#SBATCH --export=JUPYTERHUB_API_TOKEN\n#SBATCH --get-user-env=L\n#SBATCH --chdir=/\nsrun jupyterhub-singleuser\n", "sbatch", "--parsable")
	if status != 0 || strings.TrimSpace(out) != "101" {
		t.Errorf("status %d: %s%s", status, out, errors)
	}
}

func TestFireworksCountsLinesAndPysqaReadsFiveColumns(t *testing.T) {
	s := newSlurmTools(t)
	s.want("bob's jobs", len(lines(s.ok("squeue", `-o "%u"`, "-u", "bob", "-h"), "")), 1)
	for _, row := range lines(s.ok("squeue", "--format", "%A|%u|%t|%.15j|%Z", "--noheader"), "|") {
		if _, err := strconv.Atoi(row[0]); err != nil || len(row) != 5 {
			t.Errorf("line %q", row)
		}
	}
}

func TestCovalentFindsAStateOnlyWhileTheJobIsActive(t *testing.T) {
	s := newSlurmTools(t)
	active := regexp.MustCompile(`PENDING|RUNNING|COMPLETING|CONFIGURING`)
	for job, want := range map[string]bool{"100": true, "102": true, "131": true, "120": false, "121": false, "122": false} {
		if got := active.MatchString(s.ok("scontrol", "show", "job", job)); got != want {
			t.Errorf("job %s: active %v, want %v", job, got, want)
		}
	}
}

func TestMPIAndTorchrunReadNamesAndVersions(t *testing.T) {
	s := newSlurmTools(t)
	for _, p := range gslurm.Programs() {
		words := strings.Fields(s.ok(p.Name, "--version"))
		if len(words) != 2 || words[0] != "slurm" || !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(words[1]) {
			t.Errorf("%s: version %q", p.Name, words)
		}
	}
	names, err := hostlist.Expand("n[01-02]")
	if err != nil {
		t.Fatal(err)
	}
	s.want("hosts", strings.Fields(s.ok("scontrol", "show", "hostnames", "n[01-02]")), names)
	s.env = []string{"SLURM_JOB_NODELIST=n[01-02]"}
	s.want("hosts of the job", strings.Fields(s.ok("scontrol", "show", "hostnames")), names)
}

func TestDaskAndClusterGenericReadTheID(t *testing.T) {
	s := newSlurmTools(t)
	script := filepath.Join(t.TempDir(), "job.sh")
	text := "#!/usr/bin/env bash\n#SBATCH -J dask-worker\n#SBATCH -e %J.err\n#SBATCH -o %J.out\n#SBATCH -p gpu\n#SBATCH -n 1\n#SBATCH -N 1\n#SBATCH --cpus-per-task=4\n#SBATCH --mem=2G\n#SBATCH -t 00:30:00\ntrue\n"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.want("first digits", regexp.MustCompile(`\d+`).FindString(s.ok("sbatch", script)), "101")
	s.want("first line", strings.SplitN(s.ok("sbatch", "--parsable", script), "\n", 2)[0], "102")
	s.ok("scancel", "100")
}

func TestLightningRequeuesItsJobOrElement(t *testing.T) {
	s := newSlurmTools(t)
	s.ok("scontrol", "requeue", "100")
	s.ok("scontrol", "requeue", "110_0")
}
