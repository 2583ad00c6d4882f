package cli_test

import (
	"encoding/csv"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

func TestTorchxReadsJobsFromJSON(t *testing.T) {
	s := newSlurmTools(t)
	var queue struct {
		Jobs []struct {
			JobID     int      `json:"job_id"`
			Name      string   `json:"name"`
			State     []string `json:"job_state"`
			Directory string   `json:"current_working_directory"`
			Het       struct {
				Set    bool `json:"set"`
				Number int  `json:"number"`
			} `json:"het_job_id"`
			Resources struct {
				Nodes struct {
					List       string `json:"list"`
					Allocation []struct {
						Name string `json:"name"`
						CPUs struct {
							Used int `json:"used"`
						} `json:"cpus"`
						Memory struct {
							Allocated int `json:"allocated"`
						} `json:"memory"`
					} `json:"allocation"`
				} `json:"nodes"`
			} `json:"job_resources"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(s.ok("squeue", "--json", "-j", "100")), &queue); err != nil || len(queue.Jobs) != 1 {
		t.Fatal(err, len(queue.Jobs))
	}
	j := queue.Jobs[0]
	a := j.Resources.Nodes.Allocation[1]
	s.want("job", []any{j.JobID, j.Name, j.State[0], j.Directory, j.Het.Number, a.Name, a.CPUs.Used, a.Memory.Allocated}, []any{100, "two nodes", "RUNNING", "/home/alice/run", 0, "n02", 16, 65536})
	rows, err := csv.NewReader(strings.NewReader(s.ok("sinfo", "--format", "%P,%m", "--noconvert"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	s.want("partitions", rows, [][]string{{"PARTITION", "MEMORY"}, {"gpu*", "524288"}, {"main", "262144+"}})
	_, errors, status := s.run("", "squeue", "--json", "-j", "90")
	if status == 0 || errors == "" {
		t.Error("an unknown job is no error: torchx would not ask sacct")
	}
	head := lines(s.ok("sacct", "--parsable2", "-j", "90"), "|")
	s.want("sacct", head[0][:2], []string{"JobID", "JobName"})
	s.want("state", head[1][5], "COMPLETED")
}

// oodFields are the fields that Open OnDemand asks of squeue.
const oodFields = "Account JobID BatchHost MinCpus NumCPUs MinTmpDisk NumNodes EndTime Dependency Feature ArrayJobID GroupName GroupID OverSubscribe Sockets JobArrayID Cores Name Threads " +
	"Comment ArrayTaskID TimeLimit TimeLeft MinMemory TimeUsed ReqNodes NodeList Command Contiguous QOS Partition PriorityLong Reason StartTime StateCompact State UserName UserID Reservation " +
	"SubmitTime WCKey Licenses ExcNodes CoreSpec Nice SchedNodes SCT WorkDir tres-per-node tres-alloc"

func TestOpenOnDemandSplitsFieldsAtUnitSeparators(t *testing.T) {
	s := newSlurmTools(t)
	names := strings.Fields(oodFields)
	format := strings.Join(names, ":\x1f,") + ":\x1f"
	out := s.ok("squeue", "--all", "--states=all", "--noconvert", "-O", format, "-u", "alice", "-M", "page")
	_, out, _ = strings.Cut(out, "\n") // CLUSTER: page
	count := 0
	for record := range strings.SplitSeq(out, "\x1f\n") {
		if record == "" {
			continue
		}
		count++
		if n := strings.Count(record, "\x1f") + 1; n != len(names) {
			t.Errorf("%d fields, want %d: %q", n, len(names), record)
		}
	}
	if count < 10 {
		t.Errorf("%d records", count)
	}
	for _, word := range strings.Fields(strings.SplitN(s.ok("scontrol", "show", "part", "-o"), "\n", 2)[0]) {
		if key, value, ok := strings.Cut(word, "="); !ok || key == "" || value == "" {
			t.Errorf("word %q of a partition", word)
		}
	}
	s.want("counts", regexp.MustCompile(`^(\d+)/(\d+)/(\d+)/(\d+)/`).FindStringSubmatch(s.ok("sinfo", "-aho", "%F/%C"))[4], "6")
	s.want("GPUs", strings.Fields(s.ok("sinfo", "-ahNO", "nodehost:100,gres:512,gresused:512,statelong"))[:4], []string{"n01", "gpu:h100:4", "gpu:h100:4(IDX:0-3)", "allocated"})
	s.want("features", strings.Split(strings.TrimSpace(s.ok("sinfo", "-ho", "\x1e%c\x1f%n\x1f%f", "-n", "n01", "-p", "gpu")), "\x1f"), []string{"\x1e64", "n01", "ib,nvme"})
	s.want("accounts", lines(s.ok("sacctmgr", "-nP", "show", "users", "withassoc", "format=account,qos", "where", "user=bob", "cluster=page"), "|"), [][]string{{"bio", ""}})
	history := s.ok("sacct", "-P", "--delimiter", "\x1f", "-n", "--units", "G", "--allocations", "-o",
		"jobid,jobname,partition,account,alloctres,ncpus,state,exitcode,reqtres,nodelist,start,end,submit,elapsed,user,timelimit,qos", "-j", "120")
	if n := strings.Count(history, "\x1f"); n != 16 {
		t.Errorf("%d separators: %q", n, history)
	}
	_, errors, status := s.run("", "squeue", "--all", "-j", "999", "-O", "JobID")
	if status == 0 || !strings.Contains(errors, "Invalid job id specified") {
		t.Errorf("status %d: %s", status, errors)
	}
}

func TestQtoolkitSplitsShowJobAtEqualsSigns(t *testing.T) {
	s := newSlurmTools(t)
	values := map[string]string{}
	for word := range strings.FieldsSeq(s.ok("scontrol", "show", "job", "-o", "100")) {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			t.Errorf("word %q", word)
		}
		values[key] = value
	}
	s.want("job", []string{values["JobState"], values["UserId"], values["Partition"], values["NumNodes"], values["NumCPUs"], values["CPUs/Task"], values["TimeLimit"]},
		[]string{"RUNNING", "alice(1001)", "gpu", "2", "32", "4", "01:00:00"})
	separator := "<><> "
	format := strings.Join([]string{"%i", "%t", "%r", "%j", "%u", "%P", "%l", "%D", "%C", "%M", "%m"}, separator)
	s.want("squeue", lines(s.ok("squeue", "--noheader", "-o", format, "--jobs=100,100"), separator),
		[][]string{{"100", "R", "None", "two nodes", "alice", "gpu", "1:00:00", "2", "32", "30:00", "64G"}})
	_, errors, status := s.run("", "scancel", "-v", "100")
	if status != 0 || !regexp.MustCompile(`(?i)terminating job 100`).MatchString(errors) {
		t.Errorf("status %d: %s", status, errors)
	}
}
