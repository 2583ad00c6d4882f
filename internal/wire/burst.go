package wire

import (
	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// readBurst reads what a job says about leased nodes, and what is copied before and after its script.
func (s *Submission) readBurst(p *greylagv1.JobSpec) error {
	b := p.GetBurst()
	mode, err := cluster.ParseBurstMode(Word(b.GetMode()))
	if err != nil {
		return Unset("burst.mode", b.GetMode())
	}
	market, err := cluster.ParseMarket(Word(b.GetMarket()))
	if err != nil {
		return Unset("burst.market", b.GetMarket())
	}
	s.Spec.Burst = cluster.Burst{Mode: mode, MaxCost: b.GetMaxCost(), Regions: b.GetRegions(), Market: market}
	s.Spec.StageIn, s.Spec.StageOut = readStaging(p.GetStageIn()), readStaging(p.GetStageOut())
	return nil
}

// writeBurst is the reverse of readBurst; nil for a job that says nothing about leased nodes.
func writeBurst(b *cluster.Burst) *greylagv1.Burst {
	if b.Mode == cluster.BurstDefault && b.MaxCost == 0 && len(b.Regions) == 0 && b.Market == cluster.AnyMarket {
		return nil
	}
	p := &greylagv1.Burst{Mode: Enum[greylagv1.BurstMode](b.Mode.String()), MaxCost: b.MaxCost, Regions: b.Regions}
	if b.Market != cluster.AnyMarket {
		p.Market = Enum[greylagv1.Market](b.Market.String())
	}
	return p
}

func readStaging(list []*greylagv1.Staging) (staged []cluster.Staging) {
	for _, x := range list {
		staged = append(staged, cluster.Staging{URL: x.GetUrl(), Path: x.GetPath()})
	}
	return staged
}

// WriteStaging writes what is copied before or after a script.
func WriteStaging(staged []cluster.Staging) (list []*greylagv1.Staging) {
	for _, x := range staged {
		list = append(list, &greylagv1.Staging{Url: x.URL, Path: x.Path})
	}
	return list
}
