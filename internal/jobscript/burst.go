package jobscript

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/pkg/cluster"
)

func burstRows(all []option) []option {
	return append(all, []option{
		{Option: getopt.Option{Long: "burst", Value: "MODE", Help: "never, allow or only: whether cloud nodes may be leased for it; requires --image and a time limit [that of the QOS or partition]"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Burst.Mode, err = cluster.ParseBurstMode(v)
				if err != nil || o.Burst.Mode == cluster.BurstDefault {
					return advise(fmt.Sprintf("%q is not never, allow or only", v), "write --burst=allow, or --burst=only for cloud nodes alone")
				}
				return nil
			}},
		{Option: getopt.Option{Long: "burst-max-cost", Value: "AMOUNT", Help: "maximum cost of the leased nodes of one attempt, in the currency of the cluster: 12.50"},
			set: setMaxCost},
		{Option: getopt.Option{Long: "burst-regions", Value: "REGIONS", Help: "lease nodes only in these regions of the cloud, separated by commas"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Burst.Regions, err = parseRegions(v)
				if slices.Contains(o.Burst.Regions, "") {
					err = advise(fmt.Sprintf("not a list of regions: %q", v), "separate regions with commas: eu-north-1,eu-west-1")
				}
				return err
			}},
		{Option: getopt.Option{Long: "burst-market", Value: "MARKET", Help: "spot (cheaper, can be reclaimed), on-demand or any [any: on-demand only while there is no spot node]"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Burst.Market, err = cluster.ParseMarket(v)
				if err != nil || v == "" {
					return advise(fmt.Sprintf("%q is not spot, on-demand or any", v), "write --burst-market=spot")
				}
				return nil
			}},
		{Option: getopt.Option{Long: "stage-in", Value: "PATH=URL", Help: "copy URL to PATH in the working directory on each node before the script starts; s3, https, http or rsync; repeatable"},
			set: func(o *Options, v string, _ time.Time) error { return addStaging(&o.StageIn, v) }},
		{Option: getopt.Option{Long: "stage-out", Value: "PATH=URL", Help: "copy PATH in the working directory of the first node to URL after the script; repeatable"},
			set: func(o *Options, v string, _ time.Time) error { return addStaging(&o.StageOut, v) }},
	}...)
}

func setMaxCost(o *Options, v string, _ time.Time) (err error) {
	o.Burst.MaxCost, err = cluster.ParseMoney(v)
	switch {
	case err != nil:
		return advise(err.Error(), "write an amount in the currency of the cluster, such as --burst-max-cost=12.50")
	case o.Burst.MaxCost == 0:
		return advise(fmt.Sprintf("%q is not above 0", v), "omit it for no limit of the job's own")
	}
	return nil
}

// addStaging adds PATH=URL to a list.
func addStaging(list *[]cluster.Staging, v string) error {
	s, err := cluster.ParseStaging(v)
	if err != nil {
		return advise(err.Error(), "write PATH=URL, such as data/set.tar=s3://bucket/set.tar, or data/=s3://bucket/data/ for a directory")
	}
	*list = append(*list, s)
	return nil
}

// finishBurst warns of options for leased nodes without effect.
func (r *resolver) finishBurst(o *Options) {
	if o.Burst.Mode != cluster.BurstNever {
		return
	}
	var without []string
	for _, name := range []string{"burst-max-cost", "burst-regions", "burst-market"} {
		if r.given(name) {
			without = append(without, "--"+name)
		}
	}
	if len(without) > 0 {
		r.warnings = append(r.warnings, strings.Join(without, ", ")+" without effect: --burst=never")
	}
}
