package ec2wire

import (
	"encoding/xml"
	"net/url"
	"slices"
	"strings"
	"time"
)

type wireSpotStatus struct {
	Code    string `xml:"code"`
	Updated string `xml:"updateTime"`
}

type wireSpotRequest struct {
	ID       string         `xml:"spotInstanceRequestId"`
	Instance string         `xml:"instanceId"`
	Status   wireSpotStatus `xml:"status"`
}

type describeSpotRequestsResponse struct {
	XMLName  xml.Name          `xml:"DescribeSpotInstanceRequestsResponse"`
	Requests []wireSpotRequest `xml:"spotInstanceRequestSet>item"`
	Next     string            `xml:"nextToken,omitempty"`
}

func (s *Server) describeSpotRequests(form url.Values) (any, *failure) {
	all, failed := s.visible(form)
	if failed != nil {
		return nil, failed
	}
	var requests []wireSpotRequest
	for _, one := range all {
		if one.Spot == "" {
			continue
		}
		code, at := "fulfilled", one.Launched
		switch ended, when := s.interrupted(one); {
		case ended:
			code, at = "instance-terminated-no-capacity", when
		case !one.Ended.IsZero():
			code, at = "instance-terminated-by-user", one.Ended
		case !one.Noticed.IsZero():
			code, at = "marked-for-termination", one.Noticed
		}
		requests = append(requests, wireSpotRequest{one.Spot, one.ID, wireSpotStatus{code, at.UTC().Format(time.RFC3339)}})
	}
	part, next := page(s, form, requests)
	return describeSpotRequestsResponse{Requests: part, Next: next}, nil
}

type wireSpotPrice struct {
	Type    string `xml:"instanceType"`
	Product string `xml:"productDescription"`
	Price   string `xml:"spotPrice"`
	Since   string `xml:"timestamp"`
	Zone    string `xml:"availabilityZone"`
}

type describeSpotPricesResponse struct {
	XMLName xml.Name        `xml:"DescribeSpotPriceHistoryResponse"`
	Prices  []wireSpotPrice `xml:"spotPriceHistorySet>item"`
	Next    string          `xml:"nextToken,omitempty"`
}

func (s *Server) describeSpotPrices(form url.Values) (any, *failure) {
	kinds := list(form, "InstanceType")
	var all []wireSpotPrice
	for _, p := range s.Prices {
		if slices.Contains(kinds, p.Type) {
			all = append(all, wireSpotPrice{p.Type, "Linux/UNIX", p.Price, p.Since.UTC().Format(time.RFC3339), p.Zone})
		}
	}
	part, next := page(s, form, all)
	return describeSpotPricesResponse{Prices: part, Next: next}, nil
}

type wireGPU struct {
	Name   string `xml:"name"`
	Count  int    `xml:"count"`
	Memory int    `xml:"memoryInfo>sizeInMiB"`
}

type wireType struct {
	Name   string    `xml:"instanceType"`
	VCPUs  int       `xml:"vCpuInfo>defaultVCpus"`
	Memory int       `xml:"memoryInfo>sizeInMiB"`
	GPUs   []wireGPU `xml:"gpuInfo>gpus>item"`
}

type describeTypesResponse struct {
	XMLName xml.Name   `xml:"DescribeInstanceTypesResponse"`
	Types   []wireType `xml:"instanceTypeSet>item"`
	Next    string     `xml:"nextToken,omitempty"`
}

func (s *Server) describeTypes(form url.Values) (any, *failure) {
	var all []wireType
	for _, name := range list(form, "InstanceType") {
		i := slices.IndexFunc(s.Types, func(t Type) bool { return t.Name == name })
		if i < 0 {
			return nil, refuse("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", name)
		}
		t := s.Types[i]
		out := wireType{Name: t.Name, VCPUs: t.VCPUs, Memory: t.MemoryMiB}
		if t.GPUs > 0 {
			out.GPUs = []wireGPU{{t.GPUName, t.GPUs, t.GPUMemoryMiB}}
		}
		all = append(all, out)
	}
	part, next := page(s, form, all)
	return describeTypesResponse{Types: part, Next: next}, nil
}

type wireOffering struct {
	Type string `xml:"instanceType"`
	Kind string `xml:"locationType"`
	Zone string `xml:"location"`
}

type describeOfferingsResponse struct {
	XMLName   xml.Name       `xml:"DescribeInstanceTypeOfferingsResponse"`
	Offerings []wireOffering `xml:"instanceTypeOfferingSet>item"`
	Next      string         `xml:"nextToken,omitempty"`
}

func (s *Server) describeOfferings(form url.Values) (any, *failure) {
	wanted := filters(form)["instance-type"]
	var all []wireOffering
	for _, t := range s.Types {
		for _, zone := range t.Zones {
			if slices.Contains(wanted, t.Name) {
				all = append(all, wireOffering{t.Name, "availability-zone", zone})
			}
		}
	}
	part, next := page(s, form, all)
	return describeOfferingsResponse{Offerings: part, Next: next}, nil
}

type wireSubnet struct {
	ID   string `xml:"subnetId"`
	Zone string `xml:"availabilityZone"`
}

type describeSubnetsResponse struct {
	XMLName xml.Name     `xml:"DescribeSubnetsResponse"`
	Subnets []wireSubnet `xml:"subnetSet>item"`
}

func (s *Server) describeSubnets(form url.Values) (any, *failure) {
	var out describeSubnetsResponse
	for _, id := range list(form, "SubnetId") {
		zone, ok := s.Subnets[id]
		if !ok {
			return nil, refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
		out.Subnets = append(out.Subnets, wireSubnet{id, zone})
	}
	return out, nil
}

// template returns the launch template that a call names; the zero template if it names none.
func (s *Server) template(form url.Values) (Template, *failure) {
	id, name := form.Get("LaunchTemplate.LaunchTemplateId"), form.Get("LaunchTemplate.LaunchTemplateName")
	if id == "" && name == "" {
		return Template{}, nil
	}
	return s.findTemplate(id, name)
}

func (s *Server) findTemplate(id, name string) (Template, *failure) {
	for known, t := range s.Templates {
		if known == id || id == "" && t.Name == name {
			return t, nil
		}
	}
	if strings.HasPrefix(id, "lt-") {
		return Template{}, refuse("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
	}
	return Template{}, refuse("InvalidLaunchTemplateName.NotFoundException", "The specified launch template, with template name %s, does not exist.", name)
}

type wireInterface struct {
	Device int `xml:"deviceIndex"`
}

type wireTemplate struct {
	Version    int             `xml:"versionNumber"`
	Image      string          `xml:"launchTemplateData>imageId,omitempty"`
	Interfaces []wireInterface `xml:"launchTemplateData>networkInterfaceSet>item"`
}

type describeTemplatesResponse struct {
	XMLName  xml.Name       `xml:"DescribeLaunchTemplateVersionsResponse"`
	Versions []wireTemplate `xml:"launchTemplateVersionSet>item"`
}

func (s *Server) describeTemplates(form url.Values) (any, *failure) {
	t, failed := s.findTemplate(form.Get("LaunchTemplateId"), form.Get("LaunchTemplateName"))
	if failed != nil {
		return nil, failed
	}
	out := wireTemplate{Version: 1, Image: t.Image}
	if t.HasInterfaces {
		out.Interfaces = []wireInterface{{0}}
	}
	return describeTemplatesResponse{Versions: []wireTemplate{out}}, nil
}
