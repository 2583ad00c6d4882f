package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// readPlaces reads the locality of a job's nodes, its generic resources and licences.
func readPlaces(p *greylagv1.Request, r *cluster.Request) error {
	for _, l := range p.GetLicences() {
		r.Licences = append(r.Licences, cluster.Licence{Name: l.GetName(), Count: l.GetCount()})
	}
	r.Gres = readGres(p.GetGres())
	if c := p.GetConnect(); c != 0 {
		r.Connect = cluster.Connect(c - 1)
	}
	switch wait := p.GetSwitchWait(); {
	case !r.HasLocality():
	case wait != nil && (wait.GetSeconds() < 0 || wait.GetNanos() < 0), wait == nil && r.Connect != cluster.ConnectAny:
		r.SwitchWait = cluster.SwitchAlways
	case wait == nil:
		r.SwitchWait = cluster.SwitchDefault
	default:
		var err error
		r.SwitchWait, err = duration("the wait for switches", wait)
		return err
	}
	return nil
}

func writeConnect(r *cluster.Request) greylagv1.Connect {
	if r.Connect == cluster.ConnectAny {
		return 0
	}
	return greylagv1.Connect(r.Connect + 1)
}

// writeSwitchWait writes nothing where readPlaces has the same default.
func writeSwitchWait(r *cluster.Request) *durationpb.Duration {
	switch {
	case !r.HasLocality(), r.SwitchWait == cluster.SwitchDefault:
		return nil
	case r.SwitchWait < 0:
		return &durationpb.Duration{Seconds: -1}
	}
	return durationpb.New(r.SwitchWait)
}

// readGres reads generic resources, sorted by name.
func readGres(list []*greylagv1.Gres) []cluster.Gres {
	var all []cluster.Gres
	for _, g := range list {
		all = append(all, cluster.Gres{Name: short(g.GetName()), Type: short(g.GetType()), Count: g.GetCount()})
	}
	cluster.SortGres(all)
	return all
}

// WriteGres writes generic resources.
func WriteGres(list []cluster.Gres) []*greylagv1.Gres {
	var all []*greylagv1.Gres
	for _, g := range list {
		all = append(all, &greylagv1.Gres{Name: g.Name, Type: g.Type, Count: g.Count})
	}
	return all
}

func writeLicences(list []cluster.Licence) []*greylagv1.Licence {
	var all []*greylagv1.Licence
	for _, l := range list {
		all = append(all, &greylagv1.Licence{Name: l.Name, Count: l.Count})
	}
	return all
}
