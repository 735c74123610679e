# Installs the library, its headers and a package so that find_package(deltanet CONFIG) works elsewhere.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/deltanet)

install(TARGETS deltanet EXPORT deltanetTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/deltanet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT deltanetTargets NAMESPACE deltanet:: DESTINATION ${package_dir})

get_target_property(DELTANET_LIBRARY_TYPE deltanet TYPE)
configure_package_config_file(cmake/deltanetConfig.cmake.in deltanetConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(deltanetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/deltanetConfig.cmake ${PROJECT_BINARY_DIR}/deltanetConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/ModelLibraries.cmake
        DESTINATION ${package_dir})
