package gsubmit

import (
	"errors"
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/jobspec"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript"
)

// spec converts the request to the form of the API, with absolute paths.
func (p command) spec(o jobscript.Options, script jobscript.Script, args []string) (*greylagv1.JobSpec, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // for people only; "" is fine
	message, left, err := jobspec.Encode(o, script, args, jobspec.Place{Dir: dir, Host: host, Environ: p.Environ})
	var garbled *jobspec.NotText
	if errors.As(err, &garbled) {
		return nil, &ui.UsageError{Problem: garbled.Error(), Advice: "the working directory and the script's arguments must be"}
	}
	for _, name := range left {
		p.Warn(fmt.Sprintf("the variable %q is not UTF-8: the job does not get it", name))
	}
	spec := &greylagv1.JobSpec{}
	return spec, errors.Join(err, proto.Unmarshal(message, spec))
}
