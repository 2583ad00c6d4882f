package jobscript

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/jobscript/getopt"
)

func runRows(all []option) []option {
	return append(all, []option{
		{Option: getopt.Option{Long: "image", Value: "REFERENCE", Help: "run in this OCI image [the node's file system]"},
			set: text(func(o *Options) *string { return &o.Image })},
		{Option: getopt.Option{Long: "mount", Value: "SOURCE[:TARGET[:ro]]", Help: "bind-mount a file or directory of the node at TARGET [same path]; requires --image, repeatable"},
			set: func(o *Options, v string, _ time.Time) error { return o.addMount(v) }},
		{Option: getopt.Option{Long: "chdir", Short: 'D', Value: "FOLDER", Help: "working directory [this one]"},
			set: text(func(o *Options) *string { return &o.WorkDir })},
		{Option: getopt.Option{Long: "output", Short: 'o', Value: "FILE", Help: "its output; %j job, %A array, %a index, %x name, %u user, %N node, %n rank, %r restarts, %% percent [greylag-%j.out]"},
			set: text(func(o *Options) *string { return &o.Output })},
		{Option: getopt.Option{Long: "error", Short: 'e', Value: "FILE", Help: "its error output [that of --output]"},
			set: text(func(o *Options) *string { return &o.Error })},
		{Option: getopt.Option{Long: "input", Short: 'i', Value: "FILE", Help: "its input [/dev/null]"},
			set: text(func(o *Options) *string { return &o.Input })},
		{Option: getopt.Option{Long: "open-mode", Value: "MODE", Help: "append to output files, or truncate them [truncate]"},
			set: func(o *Options, v string, _ time.Time) error {
				o.Append = v == "append"
				if v != "append" && v != "truncate" {
					return advise(fmt.Sprintf("unknown mode %q", v), "write append or truncate")
				}
				return nil
			}},
		{Option: getopt.Option{Long: "export", Value: "WHAT", Help: "variables the job gets: ALL, NONE or [ALL,]NAME[=VALUE],... [ALL]"},
			set: func(o *Options, v string, _ time.Time) error { return parseExport(v, &o.Export) }},
		{Option: getopt.Option{Long: "env", Value: "NAME[=VALUE]", Help: "one more variable; may be repeated"},
			set: func(o *Options, v string, _ time.Time) error {
				o.env = append(o.env, v)
				return new(Export).add(v)
			}},
	}...)
}

// CommandOptions names the options that tell gsubmit what to do, not what the job is.
func CommandOptions() []string {
	var names []string
	for _, row := range commandRows(nil) {
		names = append(names, row.Long)
	}
	return names
}

func commandRows(all []option) []option {
	return append(all, []option{
		{Option: getopt.Option{Long: "wrap", Value: "COMMAND", Help: "submit a shell command instead of a script"}, onlyTyped: true,
			set: func(o *Options, v string, _ time.Time) error { o.Wrap = v; return nil }},
		{Option: getopt.Option{Long: "wait", Short: 'W', Help: "wait for the job's end and exit as it did"},
			set: turn(func(o *Options) { o.Wait = true })},
		{Option: getopt.Option{Long: "parsable", Help: "print only the job ID"},
			set: turn(func(o *Options) { o.Parsable = true })},
		{Option: getopt.Option{Long: "json", Help: "print JSON"}, onlyTyped: true,
			set: turn(func(o *Options) { o.JSON = true })},
		{Option: getopt.Option{Long: "quote", Help: "print the cost without submitting"}, onlyTyped: true,
			set: turn(func(o *Options) { o.Quote = true })},
		{Option: getopt.Option{Long: "test-only", Help: "print the expected start without submitting"},
			set: turn(func(o *Options) { o.TestOnly = true })},
		{Option: getopt.Option{Long: "quiet", Short: 'Q', Help: "print no warnings and no id"},
			set: turn(func(o *Options) { o.Quiet = true })},
		{Option: getopt.Option{Long: "help", Short: 'h', Help: "print this"}, onlyTyped: true, set: turn(func(*Options) {})},
		{Option: getopt.Option{Long: "version", Short: 'V', Help: "print the version"}, onlyTyped: true, set: turn(func(*Options) {})},
	}...)
}
