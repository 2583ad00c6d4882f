package acct

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// field is one property of a row, by sacct's name and in sacct's width.
type field struct {
	name  string
	width int // negative: at the left edge
	write func(r *row) string
}

// fields are all that can be chosen, in the order of their names.
func fields() []field {
	all := slices.Concat(whoseFields(), whenFields(), howMuchFields(), measuredFields(), gpuFields(), howFields())
	for _, p := range ui.JobProperties() {
		all = append(all, field{p.Name, p.Width, func(r *row) string { return p.Of(r.Job) }})
	}
	for _, name := range unknownHere() {
		all = append(all, field{name: name, width: 10})
	}
	slices.SortFunc(all, func(a, b field) int { return strings.Compare(strings.ToLower(a.name), strings.ToLower(b.name)) })
	return all
}

// unknownHere lists fields of sacct that Greylag does not record. They are accepted, so that
// scripts that name them work, and empty.
func unknownHere() []string {
	return []string{
		"AssocID", "AveCPUFreq", "AveDiskRead", "AveDiskWrite", "AvePages", "AveVMSize", "BlockID",
		"ConsumedEnergy", "ConsumedEnergyRaw", "DBIndex", "Extra", "Flags", "Layout", "MaxDiskRead", "MaxDiskReadNode", "MaxDiskReadTask",
		"MaxDiskWrite", "MaxDiskWriteNode", "MaxDiskWriteTask", "MaxPages", "MaxPagesNode", "MaxPagesTask", "MaxVMSize",
		"MaxVMSizeNode", "MaxVMSizeTask", "McsLabel", "Priority", "QOSREQ", "ReqCPUFreq", "ReqCPUFreqGov", "ReqCPUFreqMax",
		"ReqCPUFreqMin", "ReservationId", "StdIn", "SubmitLine", "Suspended", "SystemComment", "TRESUsageOutAve", "TRESUsageOutMax", "TRESUsageOutMin", "TRESUsageOutTot", "WCKeyID",
	}
}

// The formats of sacct without options, with -b and, not as long as sacct's, with -l.
const (
	UsualFormat = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
	BriefFormat = "JobID,State,ExitCode"
	LongFormat  = "JobID,JobName%20,User,Account,Partition,QOS,State,ExitCode,Submit,Start,End,Elapsed,Timelimit," +
		"NNodes,NCPUS,NodeList,ReqTRES%40,AllocTRES%40,MaxRSS,TotalCPU,Restarts"
)

// parseFormat reads a list of fields as sacct -o takes it: names or their beginnings in any case, each with
// "%" and an optional width, separated by commas; "ALL" means all there are.
func parseFormat(format string) ([]field, error) {
	all := fields()
	var chosen []field
	for _, word := range strings.Split(format, ",") {
		name, width, sized := strings.Cut(strings.TrimSpace(word), "%")
		if name == "" && !sized {
			continue
		}
		if strings.EqualFold(name, "ALL") {
			chosen = append(chosen, all...)
			continue
		}
		i := slices.IndexFunc(all, func(f field) bool { return strings.EqualFold(f.name, name) })
		if i < 0 { // sacct takes the first that begins so
			i = slices.IndexFunc(all, func(f field) bool {
				return name != "" && len(name) <= len(f.name) && strings.EqualFold(f.name[:len(name)], name)
			})
		}
		if i < 0 {
			return nil, unknownField(name, all)
		}
		f := all[i]
		if sized {
			n, err := strconv.Atoi(width)
			if err != nil || n == 0 || n < -maxWidth || n > maxWidth {
				return nil, &ui.UsageError{Problem: fmt.Sprintf("not a width of the field %s: %q", f.name, width), Advice: "write " + f.name + "%20, or %-20 to align left"}
			}
			f.width = n
		}
		chosen = append(chosen, f)
	}
	if len(chosen) == 0 {
		return nil, &ui.UsageError{Problem: "the format names no field", Advice: "gctl acct --helpformat lists them"}
	}
	return chosen, nil
}

const maxWidth = 10_000

func unknownField(name string, all []field) error {
	names := make([]string, len(all))
	for i, f := range all {
		names[i] = strings.ToLower(f.name)
	}
	advice := "gctl acct --helpformat lists the fields"
	if near := getopt.Closest(strings.ToLower(name), names); near != "" {
		advice = "did you mean " + all[slices.Index(names, near)].name + "?"
	}
	return &ui.UsageError{Problem: fmt.Sprintf("unknown field %q", name), Advice: advice}
}

// HelpFormat lists the fields, four in a line as sacct -e does.
func HelpFormat() string {
	var b strings.Builder
	list := func(names []string) {
		for i, name := range names {
			if i%4 == 3 || i == len(names)-1 {
				b.WriteString(name + "\n")
			} else {
				fmt.Fprintf(&b, "%-19s ", name)
			}
		}
	}
	var kept []string
	for _, f := range fields() {
		if f.write != nil {
			kept = append(kept, f.name)
		}
	}
	list(kept)
	b.WriteString("\nFields of sacct that are always empty here:\n")
	list(unknownHere())
	return b.String()
}
