#pragma once
#define __HOST_CONFIG_H__
